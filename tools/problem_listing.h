#pragma once
// Problems as text and as JSON. `size` picks one size set; empty means all. Each shape
// of a set with several is shown like a size, under its name ("mine/2"). Unknown sizes throw
// Error(kBadRequest). Pure functions.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "env/problem/problem.h"

namespace kevin {

// One line per problem under a heading: id, name, families, shapes at each size.
std::string ProblemTable(const std::vector<Problem>& problems, const std::string& size);

// Everything about one problem, on a page.
std::string ProblemDetails(const Problem& problem, const std::string& size);

// The `problem` event.
nlohmann::ordered_json ProblemJson(const Problem& problem, const std::string& size);

}  // namespace kevin
