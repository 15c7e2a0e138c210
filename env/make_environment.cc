#include "env/environment.h"
#include "env/error.h"

namespace kevin {

std::unique_ptr<Environment> MakeEnvironment(const EnvironmentOptions& options) {
  if (options.device == "cpu" || options.device == "auto") return MakeCpuEnvironment(options);
  throw Error(ExitCode::kMachine, "device " + options.device + ": no GPU environment yet",
              "use --device cpu");
}

}  // namespace kevin
