#pragma once
// Inside the writers: stages that read and write other parts of equal buffers, as one function.

#include <cstdint>
#include <functional>
#include <map>

#include "policies/search/program.h"

namespace kevin::search {

// Takes the constant out of all offsets into a buffer where it is the same in all of them. Returns it by buffer: the
// function gets an address that lies so many elements behind the buffer's. Not for a Repeat. `alignment(buffer)`: of how
// many elements it must be a multiple.
std::map<int, int64_t> TakeCommonOffsets(const Program& program, Stage& stage,
                                         const std::function<int64_t(int buffer)>& alignment);

}  // namespace kevin::search
