#pragma once
// Inside tools/honest_*.cc: one builder per family of problems, and the texts' placeholders.

#include <map>
#include <string>
#include <vector>

#include "tools/honest_kernels.h"

namespace kevin {

// Each gives the kernels of one problem, found by its id; empty where the id is none of the family's.
std::vector<HonestKernel> HonestElementwise(const Problem& problem);
std::vector<HonestKernel> HonestReductions(const Problem& problem);
std::vector<HonestKernel> HonestMatmuls(const Problem& problem);
std::vector<HonestKernel> HonestSoftmaxes(const Problem& problem);
std::vector<HonestKernel> HonestNorms(const Problem& problem);
std::vector<HonestKernel> HonestScans(const Problem& problem);
std::vector<HonestKernel> HonestLosses(const Problem& problem);
std::vector<HonestKernel> HonestAttention(const Problem& problem);
// Convolutions and pooling of level 1, by the call in their text.
std::vector<HonestKernel> HonestWindows(const Problem& problem);

// What stands for each $NAME of a text.
using Parts = std::map<std::string, std::string>;

// A whole candidate: `text` with its placeholders replaced, where $LAUNCH is the problem's own signature.
// Every placeholder must be in `parts`.
std::string HonestSource(const Problem& problem, const std::string& text, Parts parts);

}  // namespace kevin
