#pragma once
// Tensors and their operators.
#include <kevin/macros.h>
