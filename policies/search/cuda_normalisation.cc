// CUDA: out = f(inputs, reductions of the inputs): softmax, log-softmax, layer norm, RMS norm and their
// relatives.

#include <fmt/format.h>

#include "policies/search/cuda_prelude.h"
#include "policies/search/cuda_staged.h"

namespace kevin::search {

std::optional<Kernel> RecogniseCudaNormalisation(const Computation& computation) {
  const std::optional<NormalisedForm> one_pass = FindNormalised(computation.one_pass);
  const std::optional<NormalisedForm> two_pass = FindNormalised(computation.two_pass);
  if (!one_pass || !two_pass) return std::nullopt;
  const bool has_two_forms = computation.one_pass->key != computation.two_pass->key;
  const bool is_row = one_pass->layout.inner == 1;
  Kernel kernel;
  kernel.family =
      Contains(computation.one_pass, [](const Term& t) { return t.op == "max"; }) ? "softmax" : "norm";
  kernel.summary =
      fmt::format("{} passes that find what a row needs, then one that writes", one_pass->stages.size());
  kernel.knobs = is_row ? RowKnobs({*one_pass}, computation.task->device) : ColumnKnobs({*one_pass});
  if (has_two_forms) {
    // On data that stays in registers or shared memory the second pass is cheap, and more exact.
    const std::string& place = kernel.knobs[0].values[0];
    const bool rereads = place == "block" || place.rfind("split", 0) == 0 || !is_row;
    kernel.knobs.push_back({"moments", rereads ? std::vector<std::string>{"onepass", "twopass"}
                                               : std::vector<std::string>{"twopass", "onepass"}});
  }
  kernel.write = [one_pass = StagedWork{*one_pass}, two_pass = StagedWork{*two_pass}, has_two_forms, is_row,
                  task = *computation.task](const Setting& setting) {
    const StagedWork& work = has_two_forms && Is(setting, "moments", "twopass") ? two_pass : one_pass;
    return WithCudaPrelude(is_row ? WriteRows(work, task, setting) : WriteColumns(work, task, setting));
  };
  return kernel;
}

}  // namespace kevin::search
