// How torch takes memory from a GPU. Needs none: what it is told is told before CUDA starts.

#include "policies/local/model/device.h"

#include <c10/core/AllocatorConfig.h>
#include <stdlib.h>

#include "tests/catch.h"

namespace kevin::local {
namespace {

bool SegmentsGrow() {
  c10::CachingAllocator::setAllocatorSettings("expandable_segments:False");
  try {
    OpenCuda(c10::Device(c10::kCUDA, 0));
  } catch (const Error&) {  // no GPU here
  }
  return c10::CachingAllocator::AcceleratorAllocatorConfig::use_expandable_segments();
}

}  // namespace

TEST_CASE("segments of a GPU's memory grow, unless the user has settings for torch's allocator") {
  for (const char* name : {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}) unsetenv(name);
  CHECK(SegmentsGrow());
  for (const char* name : {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}) {
    setenv(name, "garbage_collection_threshold:0.8", 1);
    CHECK_FALSE(SegmentsGrow());
    unsetenv(name);
  }
  OpenCuda(c10::Device(c10::kCPU));
  CHECK_FALSE(c10::CachingAllocator::AcceleratorAllocatorConfig::use_expandable_segments());
  ReturnFreeMemory(c10::Device(c10::kCPU));  // nothing to do, with a GPU or without
}

}  // namespace kevin::local
