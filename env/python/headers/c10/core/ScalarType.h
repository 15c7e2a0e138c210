#pragma once
// Element types.
#include <kevin/macros.h>
