#include "env/process/inputs_apart.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>

namespace kevin {
namespace {

std::byte* Map(void* at, int64_t bytes, int protection, int flags, int fd, int64_t offset) {
  void* mapped = mmap(at, static_cast<size_t>(bytes), protection, flags, fd, offset);
  if (mapped == MAP_FAILED) {
    std::perror("cannot map the inputs");
    _exit(1);
  }
  return static_cast<std::byte*>(mapped);
}

}  // namespace

InputsApart::InputsApart(int inputs_fd, int outputs_fd, const RunnerLoad& load)
    : inputs_fd_(inputs_fd), outputs_fd_(outputs_fd) {
  for (const ArgumentPlace& place : load.arguments) {
    if (!place.output || place.inout)
      bytes_ += kAlignment + load.slots * (static_cast<int64_t>(place.stride) + GapBetweenInputs(place));
  }
  // Zeros take no memory where nobody writes.
  zeros_ = Map(nullptr, bytes_, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

std::byte* InputsApart::Place(const ArgumentPlace& place, int slots) {
  const auto stride = static_cast<int64_t>(place.stride), gap = GapBetweenInputs(place);
  const int64_t guard = place.inout ? kSlotPage : 0, offset = static_cast<int64_t>(place.offset) - guard;
  const int protection = place.inout ? PROT_READ | PROT_WRITE : PROT_READ;
  // The same place in a 2 MiB page as in the file, so that such pages can be mapped.
  const auto here = reinterpret_cast<int64_t>(zeros_ + used_);
  used_ += ((offset - here) % kAlignment + kAlignment) % kAlignment;
  if (used_ < gap) used_ += kAlignment;
  std::byte* first = zeros_ + used_;
  for (int slot = 0; slot < slots; ++slot) {
    std::byte* at = Map(zeros_ + used_, stride, protection, MAP_SHARED | MAP_FIXED,
                        place.inout ? outputs_fd_ : inputs_fd_, offset + slot * stride);
    madvise(at, place.stride, MADV_HUGEPAGE);  // as for the reference process
    madvise(at, place.stride, place.inout ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
    used_ += stride + gap;
  }
  return first + guard;
}

}  // namespace kevin
