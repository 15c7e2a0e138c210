#pragma once
// Which names a problem file may use. Pure functions; any thread.

#include <cstddef>
#include <string>
#include <string_view>

namespace kevin {

// Names of a problem file end up in generated code, paths, tables and messages, and a file may come from
// anyone. Each function says why a text is not such a name; empty if it is one.
//
// Of a tensor or a size symbol, which are in scope in C++ and in TorchScript: an identifier of ASCII letters,
// digits and _ with at most 100 bytes, no reserved word of either language, without __ at its beginning.
std::string WhyNoName(std::string_view name);
// Of a problem: parts of ASCII letters, digits, '_', '-', '.' and '+', none of which begins with '.' or '-',
// with '/' between them; at most 200 bytes.
std::string WhyNoId(std::string_view id);
// Of a size or a set of shapes: the same, at most 64 bytes.
std::string WhyNoSize(std::string_view name);
// Of a title, a family or a reason, which people read: one line of UTF-8 without hidden characters
// (env/printable.h), at most `most` bytes.
std::string WhyNoLine(std::string_view text, size_t most);

}  // namespace kevin
