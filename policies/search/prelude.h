#pragma once
// The C++ that every generated kernel starts from: a vector type, loads and stores for whole and partial
// vectors, and the functions of one variable with their polynomials. Only the parts that a kernel uses are
// written.

#include <string>
#include <vector>

namespace kevin::search {

// `body` is the kernel's text; `lanes` is "full" (the widest registers of the compiling machine) or "half";
// `element` is the tensors' type, of which "_Float16" and "bf16" are widened on loading and rounded on
// storing (such a body does not stream).
std::string WithPrelude(const std::string& body, const std::string& lanes,
                        const std::string& element = "float");

struct PreludePart {
  const char* trigger;  // written when the kernel, or a later part that is written, has this word's start
  const char* text;
};
// `text` behind the parts that it needs. Later parts may use earlier ones.
std::string WithParts(std::string text, const std::vector<PreludePart>& parts);

}  // namespace kevin::search
