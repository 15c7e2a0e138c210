#pragma once
// A reply that changes an earlier kernel instead of repeating it: a unified diff, or some of its functions. Pure; any
// thread.

#include <optional>
#include <string>
#include <string_view>

namespace kevin {

struct Edited {
  std::string source;   // the changed kernel; empty where there is a failure
  std::string failure;  // where the change does not fit: "hunk 2 of the diff does not apply: ..."
};

inline constexpr size_t kMostHunks = 200;

// Lines with + and - below a line with @@, or a header of a diff.
bool IsDiff(std::string_view text);

// Hunks of a unified diff, found by their lines: each where its context and removed lines stand in `base`, nearest to
// the line that it states. Models miscount lines, so the numbers are hints; white space at the ends of lines does not
// count. A line of a hunk that has no mark is context.
Edited ApplyDiff(std::string_view diff, const std::string& base);

// `code` holds functions of `base` and lacks the rest: its functions take the place of those with their names; what
// else it defines comes before them. nullopt: it is a kernel of its own, or shares no function with `base`.
std::optional<std::string> ReplaceFunctions(std::string_view code, const std::string& base);

// The difference as a unified diff, with two lines of context; empty for equal texts, and for texts that are too long to
// compare (4 million pairs of lines).
std::string UnifiedDiff(const std::string& before, const std::string& after, const std::string& before_name,
                        const std::string& after_name);

}  // namespace kevin
