#pragma once
// For env/reference/graph.cc alone.

namespace kevin {

// Does nothing: a call links the kernels.
void LinkMetaKernels();
void LinkMetaShapes();  // called by LinkMetaKernels

}  // namespace kevin
