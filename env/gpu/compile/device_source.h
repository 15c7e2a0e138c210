#pragma once
// From a candidate's device text to what NVRTC compiles.

#include <string>
#include <vector>

#include "env/problem/expression.h"

namespace kevin {

struct DeviceSource {
  std::string text;
  bool precompiled = false;  // begins with headers worth precompiling (NVRTC's -pch), up to nv_hdrstop
};

// Expensive headers that the text includes come first and in a fixed order, so that NVRTC finds them among
// its precompiled ones whatever else the text does; then basics, the symbols as `constexpr long`, and the
// text, its lines numbered as its author sees them.
DeviceSource BuildDeviceSource(const std::string& device_text, const Symbols& symbols);

// Sets of headers to precompile in an idle compiler, the most usual first; each a text that compiles.
const std::vector<std::string>& WarmUpTexts();

// The names of the functions declared `__global__`, templates included, in the text's order.
std::vector<std::string> KernelsIn(const std::string& device_text);

}  // namespace kevin
