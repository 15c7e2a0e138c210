#pragma once
// C10_CUDA_CHECK.
#include <kevin/cuda.h>
