#pragma once
// The command line of `kevin-model`.

#include "policies/local/serve/model_program.h"

namespace kevin {

// Parses, runs, prints an Error as `kevin` does, and returns the exit code.
int ModelMain(int argc, char** argv, const local::ModelReader& read, const local::RunnerMaker& make);

}  // namespace kevin
