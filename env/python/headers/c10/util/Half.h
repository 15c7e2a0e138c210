#pragma once
// Half.
#include <kevin/macros.h>
