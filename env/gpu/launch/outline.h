#pragma once
// The top level of a candidate's text: the functions, kernels, constants and types it declares, and their
// places. Bodies are not read. A text of kind `ptx` has host declarations between PTX directives.

#include <set>
#include <string>
#include <vector>

#include "env/gpu/launch/lexer.h"

namespace kevin::launch {

// Indices into Outline::tokens; `end` is one past the last.
struct TokenRange {
  size_t begin = 0, end = 0;
  bool empty() const { return begin == end; }
};

struct Function {
  std::string name;
  std::string scope;  // "" or "ns::"
  bool global = false, device = false, host = false, extern_c = false, constant = false;
  bool is_template = false;
  TokenRange whole;                // with qualifiers, body and braces
  TokenRange template_parameters;  // between < and >
  TokenRange parameters;           // between ( and )
  TokenRange body;                 // between { and }
  bool defined = false;            // not only declared
  size_t name_token = 0;
  // The host side may call it: neither a kernel nor device-only.
  bool OnHost() const { return !global && (!device || host || constant); }
};

// `const int kTile = 16, kRows = 4;` or an enum, read by the parser when one of its names is needed.
struct Constants {
  std::string scope;
  TokenRange range;  // with the `;` of a declaration; of an enum, between the braces
  bool is_enum = false;
  std::string enum_name;  // may be empty
  bool scoped = false;    // enum class
};

struct Alias {
  std::string scope, name;
  TokenRange type;
};

// `__constant__ float taps[16];`
struct ConstantVariable {
  std::string scope, name;
  TokenRange type;
};

struct Outline {
  std::vector<Token> tokens;
  std::vector<size_t> partner;  // of each bracket token its other half; npos where there is none
  std::vector<size_t> angles;   // of each '<' that may open template arguments the '>' that closes them
  std::vector<Preprocessed::Range> directives;
  bool includes = false;
  std::vector<Function> functions;  // in the text's order; kernels too
  std::vector<Constants> constants;
  std::vector<Alias> aliases;
  std::vector<ConstantVariable> constant_variables;
  std::vector<std::string> used_namespaces;   // "ns::"
  std::vector<TokenRange> host_declarations;  // kind ptx: everything that is not PTX
  std::set<std::string> type_names;           // aliases and enums, unqualified
  std::set<std::string> template_names;       // of functions, unqualified
};

// Throws LaunchException for a bracket that is not closed at top level.
Outline ReadOutline(const SourceText& source, const Symbols& symbols, bool ptx);

// The index of the '>' that closes the '<' at `open`, or npos.
size_t ClosingAngle(const Outline& outline, size_t open, size_t end);

// The one host function `launch`. Throws LaunchException: missing (with `signature`), twice, a template, ...
const Function& FindLaunch(const SourceText& source, const Outline& outline, const std::string& signature);

// The text in two parts. device: host-only functions are replaced by spaces, line ends are kept. host: the
// replaced parts.
struct HostAndDevice {
  std::string host, device;
};
HostAndDevice SplitText(const SourceText& source, const Outline& outline, const Function& launch, bool ptx);

}  // namespace kevin::launch
