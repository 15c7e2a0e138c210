#pragma once
// The shapes of an evaluation (ShapeResult) as JSON, as the store keeps them, and as lines for people and
// policies. Pure.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "env/environment.h"

namespace kevin {

// A list of objects: `size`, `symbols`, `weight`, then the fields of the `evaluation` event that say what
// came of it
// (`outcome`, `reason`, `verdict`, `speedup`, ...). What is not known is null.
nlohmann::ordered_json ShapesJson(const std::vector<ShapeResult>& shapes);

// As EvaluationRecord::machine keeps it: an object with that list as `shapes`, or without it where there are
// none. Reading a foreign text gives none.
std::string ShapesText(const std::vector<ShapeResult>& shapes);
std::vector<ShapeResult> ShapesFromText(const std::string& text);

// "mine/2 (B = 4, N = 1001), weight 2: 1.3x (1.28x to 1.33x), 12.3 us against 16 us", or what went wrong.
std::string ShapeLine(const ShapeResult& shape);

}  // namespace kevin
