#pragma once
// Eager at its best: an allocator that keeps freed blocks, as the GPU's does. Without it eager asks the
// system for fresh pages for every large output and looks 3 to 6 times slower than it is.

#include <cstddef>

namespace kevin {

// Puts the allocator in place for all CPU tensors of this process. With an arena (mapped memory, `bytes`
// long, which must outlive all tensors), blocks come from it, so that another process that maps the same
// memory can read them; else from the heap. Call once, before any tensor is made.
void InstallCachingAllocator(std::byte* arena, size_t bytes);

}  // namespace kevin
