#pragma once
// Tensors and their operators; no modules, optimisers and data.
#include <kevin/macros.h>
