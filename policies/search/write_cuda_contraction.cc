#include "policies/search/cuda_text.h"

namespace kevin::search {

bool WriteCudaContraction(CudaText&, const Stage&, const Contraction&) { return false; }
std::vector<Knob> CudaContractionKnobs(const Program&, const Task&, const Contraction&) { return {}; }

}  // namespace kevin::search
