#pragma once
// The RunnerMaker for real models; its .cc is the one file of the server that knows torch.

#include "policies/local/serve/make_runner.h"

namespace kevin::local {

MadeRunner MakeTorchRunner(const RunnerOptions& options, const std::function<void(const std::string&)>& say);

}  // namespace kevin::local
