#pragma once
// AT_CUDA_CHECK.
#include <kevin/cuda.h>
