#pragma once
// What kevin-nccl.so offers. It is opened at run time, once libtorch_cuda.so is (model/cuda.h), and is of the
// same build as the program that opens it.

#include "policies/local/train/ranks.h"

extern "C" kevin::local::Ranks* KevinNcclRanks(const kevin::local::Meeting* meeting, double seconds,
                                               int device);
