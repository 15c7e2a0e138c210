#pragma once
// The C++ that every generated kernel starts from: a vector type, loads and stores for whole and partial
// vectors, and the functions of one variable with their polynomials. Only the parts that a kernel uses are
// written.

#include <string>

namespace kevin::search {

// `body` is the kernel's text; `lanes` is "full" (the widest registers of the compiling machine) or "half".
std::string WithPrelude(const std::string& body, const std::string& lanes);

}  // namespace kevin::search
