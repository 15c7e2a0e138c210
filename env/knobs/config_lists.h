#pragma once
// Lists of triton.Config in a text: `configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})]`. Each is a knob
// (knobs.h) whose values are the numbers of its entries, from 0: Kevin chooses among them by the rules of knobs, and the
// text that is judged has the chosen entry alone, so that its autotuner has nothing left to choose. Pure; any thread.

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace kevin {

using TextRange = std::pair<size_t, size_t>;  // bytes from ... to before ...

struct ConfigList {
  TextRange content;               // between the brackets
  std::vector<TextRange> entries;  // 2 or more, each a call of Config
};

// In the order of the text. A list that is computed (a comprehension, a variable) is none.
std::vector<ConfigList> FindConfigLists(const std::string& source);

// The text with one entry of each list alone. Lines behind the list keep their numbers. `entries` has one for each list.
std::string WithEntries(const std::string& source, const std::vector<ConfigList>& lists,
                        const std::vector<size_t>& entries);

}  // namespace kevin
