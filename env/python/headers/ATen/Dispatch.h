#pragma once
// AT_DISPATCH_*.
#include <kevin/macros.h>
