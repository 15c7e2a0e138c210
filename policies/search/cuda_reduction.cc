// CUDA: one result per reduced row: sums, means, extremes, norms, and the indices of extremes.

#include "policies/search/cuda_prelude.h"
#include "policies/search/cuda_staged.h"

namespace kevin::search {
namespace {

Kernel MakeKernel(const std::string& family, StagedWork work, const Task& task, const std::string& prelude) {
  const bool is_row = work.form.layout.inner == 1;
  Kernel kernel;
  kernel.family = family;
  kernel.summary = is_row ? "rows folded in registers, then across the threads that share one"
                          : "strips of columns folded in registers, then across the threads that share one";
  kernel.knobs = is_row ? RowKnobs(work, task.device) : ColumnKnobs(work);
  kernel.write = [work = std::move(work), is_row, task, prelude](const Setting& setting) {
    return WithCudaPrelude(prelude +
                           (is_row ? WriteRows(work, task, setting) : WriteColumns(work, task, setting)));
  };
  return kernel;
}

}  // namespace

std::optional<Kernel> RecogniseCudaReduction(const Computation& computation) {
  const std::optional<ReducedForm> form = FindReduction(computation);
  if (!form) return std::nullopt;
  return MakeKernel("reduction", StagedFrom(*form), *computation.task, "");
}

std::optional<Kernel> RecogniseCudaExtreme(const Computation& computation) {
  const std::optional<ExtremeForm> form = FindExtreme(computation);
  if (!form) return std::nullopt;
  return MakeKernel("extreme", StagedFrom(*form), *computation.task, ExtremePrelude(form->is_max));
}

}  // namespace kevin::search
