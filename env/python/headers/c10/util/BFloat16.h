#pragma once
// BFloat16.
#include <kevin/macros.h>
