#pragma once
// What extensions include first: see kevin/tensor.h.
#include <kevin/bind.h>
