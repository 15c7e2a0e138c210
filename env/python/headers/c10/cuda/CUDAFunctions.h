#pragma once
// The current device.
#include <kevin/cuda.h>
