#pragma once
// What a reference may call. The text of a problem may come from a stranger (a shared database), and TorchScript
// reaches operators that open files. A reference may call the operators listed here and no others; libtorch's
// form of it is checked (env/reference/reference.h), and its Python form (env/python/torch_compile.py).

#include <functional>
#include <set>
#include <string>
#include <string_view>

namespace kevin {

// Names of ATen without "aten::", sorted.
const std::set<std::string, std::less<>>& ReferenceOperators();

// Whether a node of this kind may stand in a reference: "aten::relu", "aten::relu_", "prim::Loop".
bool IsReferenceOperator(std::string_view kind);

// "character 13" if the text has control characters other than line ends and tabs; else empty. Readers disagree
// on what such a character does: a comment of one may be code of another.
std::string UnreadableCharacter(std::string_view text);

}  // namespace kevin
