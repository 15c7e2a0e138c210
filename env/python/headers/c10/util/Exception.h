#pragma once
// TORCH_CHECK.
#include <kevin/macros.h>
