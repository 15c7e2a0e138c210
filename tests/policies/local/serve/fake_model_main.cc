// kevin-model with a runner without a model. What it is asked for decides how it ends:
//   --dtype float16: "does not fit"; --quantization int8: it dies of SIGKILL while it answers; --quantization
//   nf4: its device fails while it answers; --quantization nf4-double: its steps take 2 ms.

#include <csignal>

#include "agent/machine.h"
#include "env/process/machine.h"
#include "policies/local/serve/model_program.h"
#include "tests/policies/local/serve/letters.h"

namespace {

using kevin::local::FakeRunner;
using kevin::local::MadeRunner;
using kevin::local::RunnerOptions;

class Suicidal : public FakeRunner {
 public:
  using FakeRunner::FakeRunner;
  std::vector<kevin::local::SampledToken> Wait() override {
    std::fputs("something is wrong\n", stderr);
    std::raise(SIGKILL);
    return {};
  }
};

MadeRunner Make(const RunnerOptions& options, const std::function<void(const std::string&)>& say) {
  say("plan: 3 bytes");
  if (options.dtype == "float16")
    throw kevin::Error(kevin::ExitCode::kMachine, "the weights need 64 GB, 16 GB are free",
                       "--quantization nf4 fits");
  FakeRunner::Options runner = kevin::local::test::LettersRunner();
  if (options.context_tokens > 0) runner.shape.context_tokens = options.context_tokens;
  if (options.quantization == "nf4") runner.fail_at_step = 5;
  if (options.quantization == "nf4-double") runner.step_seconds = 0.002;
  if (options.quantization == "int8") return {std::make_unique<Suicidal>(runner), "cpu"};
  return {std::make_unique<FakeRunner>(runner), options.device == "auto" ? "cuda:0" : options.device};
}

}  // namespace

int main(int argc, char** argv) {
  const auto hold = [](const std::string& device, const std::atomic<bool>* stop) {
    return std::make_shared<kevin::DeviceLock>(kevin::LockNameOf(device), kevin::LockMode::kShared, nullptr,
                                               stop);
  };
  return kevin::ModelMain(
      argc, argv, [](const std::filesystem::path&) { return kevin::local::test::LettersModel(); }, Make,
      hold);
}
