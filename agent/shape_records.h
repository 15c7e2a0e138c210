#pragma once
// The shapes of an evaluation (ShapeResult) as events print them, and as lines for users and policies. Pure.

#include <string>
#include <vector>

#include "agent/json.h"
#include "env/outcome.h"

namespace kevin {

// The field `shapes` of events: null for none, else a list of objects: `size`, `symbols`, `weight`, then the fields
// of the outcome as in the event itself. Unknown is null.
Json ShapesJson(const std::vector<ShapeResult>& shapes);

// "mine/2 (B = 4, N = 1001), weight 2: 1.3x (1.28x to 1.33x), 12.3 us against 16 us", or the failure.
std::string ShapeLine(const ShapeResult& shape);

}  // namespace kevin
