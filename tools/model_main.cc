// The program `kevin-model`. It links torch, so that `kevin` need not. Its main function stands here because it brings a
// model's server, which knows no measurements, and the locks of devices together.

#include <memory>

#include "agent/machine.h"
#include "env/process/machine.h"
#include "policies/local/serve/model_program.h"

int main(int argc, char** argv) {
  const auto hold = [](const std::string& device, const std::atomic<bool>* stop) {
    return std::make_shared<kevin::DeviceLock>(kevin::LockNameOf(device), kevin::LockMode::kShared, nullptr,
                                               stop);
  };
  return kevin::ModelMain(argc, argv, kevin::local::ReadFolderModel, kevin::local::MakeTorchRunner, hold);
}
