#pragma once
// Reads the straight-line subset of TorchScript that problem references use: `def` with assignments and a
// `return`, calls, operators, indexing. Local names are replaced by their values, so that one expression
// remains. Control flow throws Unsupported. Pure; any thread.

#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace kevin::search {

// Why the search policy cannot write a reference. Caught in SearchPolicy, shown by WhyNot.
struct Unsupported : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Node;
using NodePtr = std::shared_ptr<const Node>;

struct Node {
  // kCall's `text` is the function's last name: `torch.relu(x)` and `x.relu()` are both relu with args {x};
  // operators are add, sub, mul, div, floordiv, pow, matmul, neg, gt, ge, lt, le, eq; `x[a, b]` is index(x,
  // a, b), `a:b` is slice(a, b) and an attribute `x.T` is a call without further arguments.
  enum class Kind { kNumber, kName, kString, kNone, kBool, kList, kCall };
  Kind kind = Kind::kNone;
  std::string text;
  double number = 0;
  bool is_integer = false;
  std::vector<NodePtr> args;
  std::map<std::string, NodePtr> named;
};

// The expression that `forward` returns. Its parameters are kName nodes "0", "1", ... by position.
// A returned tuple is a kList node. Throws Unsupported.
NodePtr ReadReference(const std::string& torchscript);

}  // namespace kevin::search
