// The program `kevin-model`. It links torch, so that `kevin` need not.

#include "policies/local/serve/model_program.h"

int main(int argc, char** argv) {
  return kevin::ModelMain(argc, argv, kevin::local::ReadFolderModel, kevin::local::MakeTorchRunner);
}
