#include "policies/search/lower.h"

#include <fmt/format.h>

#include <algorithm>

namespace kevin::search {

TermPtr Lowering::Value(const Node& node) {
  switch (node.kind) {
    case Node::Kind::kNumber:
    case Node::Kind::kBool:
      return MakeConstant(node.number);
    case Node::Kind::kName:
      return Leaf(std::stoi(node.text));
    case Node::Kind::kCall:
      return CallValue(node);
    case Node::Kind::kList:
      throw Unsupported("the reference returns more than one tensor");
    default:
      throw Unsupported("the reference has `" + node.text + "` where a tensor was expected");
  }
}

TermPtr Lowering::Leaf(int position) {
  if (position >= static_cast<int>(arguments_.size()) || arguments_[position].role == "output") {
    throw Unsupported("`forward` takes more arguments than the problem has tensors");
  }
  const TaskArgument& argument = arguments_[position];
  const std::string& type = argument.cpp_type;
  const bool is_wide = type == "const float*" || type == "float*";
  const bool is_narrow = type.find("16") != std::string::npos || type.find("__half") != std::string::npos;
  if (!is_wide && !is_narrow) {
    throw Unsupported("`" + argument.name + "` is of no floating type");
  }
  Term term;
  term.op = "leaf";
  term.input = position;
  for (size_t i = 0; i < argument.shape.size(); ++i) {
    Dim dim{argument.shape[i], std::to_string(argument.shape[i])};
    if (i < argument.shape_symbols.size() && !argument.shape_symbols[i].empty()) {
      dim.text = "(" + argument.shape_symbols[i] + ")";
    }
    term.shape.push_back(dim);
  }
  SetContiguous(term);
  return FinishTerm(std::move(term));
}

void Lowering::SetContiguous(Term& term) {
  term.strides.assign(term.shape.size(), 0);
  int64_t stride = 1;
  for (size_t i = term.shape.size(); i-- > 0;) {
    term.strides[i] = term.shape[i].size == 1 ? 0 : stride;
    stride *= term.shape[i].size;
  }
}

double Lowering::Scalar(const Args& args, size_t position, const char* name, double fallback) {
  const Node* node = args.Get(position, name);
  if (node == nullptr || node->kind == Node::Kind::kNone) return fallback;
  const TermPtr value = Value(*node);
  if (value->op != "constant") throw Unsupported(std::string("`") + name + "` is not a number");
  return value->value;
}

bool Lowering::Flag(const Args& args, size_t position, const char* name) {
  return Scalar(args, position, name, 0) != 0;
}

std::vector<int64_t> Lowering::Integers(const Node& node) {
  std::vector<int64_t> values;
  if (node.kind == Node::Kind::kCall && (node.text == "shape" || node.text == "size")) {
    const TermPtr tensor = Value(*node.args.at(0));
    for (const Dim& dim : tensor->shape) values.push_back(dim.size);
    return values;
  }
  if (node.kind == Node::Kind::kCall && node.text == "index" && node.args.size() == 2 &&
      node.args[1]->text == "slice") {
    return Slice(Integers(*node.args[0]), *node.args[1]);
  }
  if (node.kind == Node::Kind::kList) {
    for (const NodePtr& item : node.args) values.push_back(Integers(*item).at(0));
    return values;
  }
  const TermPtr value = Value(node);
  if (value->op != "constant") throw Unsupported("a size or dimension is not a number");
  return {static_cast<int64_t>(value->value)};
}

std::vector<int64_t> Lowering::Slice(const std::vector<int64_t>& from, const Node& slice) {
  const auto bound = [&](const Node& node, int64_t fallback) {
    const int64_t at = node.kind == Node::Kind::kNone ? fallback : Integers(node).at(0);
    return std::clamp<int64_t>(at < 0 ? at + static_cast<int64_t>(from.size()) : at, 0,
                               static_cast<int64_t>(from.size()));
  };
  const int64_t begin = bound(*slice.args[0], 0);
  const int64_t end = bound(*slice.args[1], static_cast<int64_t>(from.size()));
  return {from.begin() + begin, from.begin() + std::max(begin, end)};
}

int Lowering::Wrap(int64_t dim, size_t rank) {
  const auto wrapped = static_cast<int>(dim < 0 ? dim + static_cast<int64_t>(rank) : dim);
  if (wrapped < 0 || wrapped >= static_cast<int>(rank)) throw Unsupported("a dimension is out of range");
  return wrapped;
}

std::vector<int> Lowering::Dims(const Args& args, size_t position, const TermPtr& of) {
  const Node* node = args.Get(position, "dim");
  std::vector<int> dims;
  if (node == nullptr || node->kind == Node::Kind::kNone) {
    for (size_t i = 0; i < of->shape.size(); ++i) dims.push_back(static_cast<int>(i));
    return dims;
  }
  for (const int64_t dim : Integers(*node)) dims.push_back(Wrap(dim, of->shape.size()));
  return dims;
}

TermPtr Lowering::CallValue(const Node& call) {
  using Method = TermPtr (Lowering::*)(const Node&, const Args&);
  for (const Method method :
       {&Lowering::Arithmetic, &Lowering::Activation, &Lowering::GatedActivation, &Lowering::Reduction,
        &Lowering::Statistic, &Lowering::Normalisation, &Lowering::View, &Lowering::Product}) {
    if (TermPtr term = (this->*method)(call, Args(call))) return term;
  }
  throw Unsupported("the reference uses `" + call.text + "`");
}

TermPtr Lowering::Arithmetic(const Node& call, const Args& args) {
  static const char* const kSame[] = {"neg",  "abs", "exp", "expm1", "log",     "log1p",  "sqrt",
                                      "tanh", "erf", "gt",  "lt",    "ge",      "le",     "eq",
                                      "add",  "sub", "mul", "div",   "maximum", "minimum"};
  for (const char* name : kSame) {
    if (call.text != name) continue;
    std::vector<TermPtr> values;
    for (const NodePtr& arg : call.args) values.push_back(Value(*arg));
    if (!call.named.empty()) throw Unsupported("`" + call.text + "` has named arguments");
    return MakeTerm(name, std::move(values));
  }
  if (call.text == "floordiv") {
    return Number(static_cast<double>(Integers(*call.args[0]).at(0) / Integers(*call.args[1]).at(0)));
  }
  if (call.text == "rsqrt") return Div(Number(1), Unary("sqrt", args.Need(0, "input")));
  if (call.text == "reciprocal") return Div(Number(1), Value(args.Need(0, "input")));
  if (call.text == "square") return Power(Value(args.Need(0, "input")), 2);
  if (call.text == "where") {
    return Where(Value(args.Need(0, "condition")), Value(args.Need(1, "input")),
                 Value(args.Need(2, "other")));
  }
  if (call.text == "pow") {
    const TermPtr exponent = Value(args.Need(1, "exponent"));
    if (exponent->op != "constant") throw Unsupported("the exponent of `pow` is not a number");
    return Power(Value(args.Need(0, "input")), exponent->value);
  }
  return nullptr;
}

TermPtr Lowering::Power(const TermPtr& base, double exponent) {
  if (base->op == "constant") return MakeTerm("pow", {base, Number(exponent)});
  if (exponent == 0.5) return MakeTerm("sqrt", {base});
  if (exponent == -0.5) return Div(Number(1), MakeTerm("sqrt", {base}));
  if (exponent == -1) return Div(Number(1), base);
  if (exponent == 2) return Mul(base, base);
  if (exponent == 3) return Mul(Mul(base, base), base);
  if (exponent == 4) return Mul(Mul(base, base), Mul(base, base));
  throw Unsupported(fmt::format("a power of {}", exponent));
}

TermPtr Lower(const Node& node, const std::vector<TaskArgument>& arguments, const LowerOptions& options) {
  return Lowering(arguments, options).Value(node);
}

}  // namespace kevin::search
