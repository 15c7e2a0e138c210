#pragma once
// Which of a candidate's functions belong to the host alone, and the text without them.

#include <string>

#include "env/gpu/launch/outline.h"

namespace kevin::launch {

// The one host function `launch`. Throws LaunchException: missing (with `signature`), twice, a template, ...
const Function& FindLaunch(const SourceText& source, const Outline& outline, const std::string& signature);

// The text with everything replaced by spaces that the device compiler must not see, line ends kept; and the
// text with only that.
struct HostAndDevice {
  std::string host, device;
};
HostAndDevice SplitText(const SourceText& source, const Outline& outline, const Function& launch, bool ptx);

}  // namespace kevin::launch
