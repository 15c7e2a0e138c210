// The program `kevin-model`: a language model's folder, served. Links torch, so that `kevin` need not.

#include "policies/local/serve/folder_model.h"
#include "policies/local/serve/make_torch_runner.h"
#include "policies/local/serve/model_command.h"

int main(int argc, char** argv) {
  return kevin::ModelMain(argc, argv, kevin::local::ReadFolderModel, kevin::local::MakeTorchRunner);
}
