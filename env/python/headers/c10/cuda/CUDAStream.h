#pragma once
// Streams of CUDA.
#include <kevin/cuda.h>
