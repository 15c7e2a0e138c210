#pragma once
// For env/reference/graph.cc alone.

namespace kevin {

// Does nothing: a call links the kernels.
void LinkMetaKernels();

}  // namespace kevin
