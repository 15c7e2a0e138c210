#pragma once
// The device guard.
#include <kevin/cuda.h>
