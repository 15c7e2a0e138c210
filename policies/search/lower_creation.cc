// Tensors made of numbers: constants and ramps, evaluated where they are read.

#include "policies/search/lowering.h"

namespace kevin::search {

bool Lowering::Creation(const GraphNode& node) {
  if (node.results.empty()) return false;
  const GraphValue& made = ResultOf(node);
  const Type type = TypeOf(made.dtype);
  const auto starts = [&](const char* prefix) { return node.op.starts_with(prefix); };
  const auto filled = [&](const ValuePtr& number) {
    Set(node, Lazy(made.dtype, made.shape, [=](const Index&) { return ToType(number->at({}), type); }));
    return true;
  };
  const std::string base = starts("new_")               ? node.op.substr(4)
                           : node.op.ends_with("_like") ? node.op.substr(0, node.op.size() - 5)
                                                        : node.op;
  if (base == "zeros" || base == "empty" || base == "empty_strided" || base == "zero")
    return filled(Constant(0, made.dtype));
  if (base == "ones") return filled(Constant(1, made.dtype));
  if (base == "full") return filled(Tensor(node, "fill_value"));
  if (base == "fill") return filled(Tensor(node, "value"));
  if (base == "scalar_tensor") return filled(Tensor(node, "s"));
  if (base == "tensor" && made.shape.empty())
    return filled(Tensor(node, node.args.contains("t") ? "t" : "data"));
  if (base == "arange" || base == "range") {
    const double start = Number(node, "start", 0), step = Number(node, "step", 1);
    Set(node, Lazy(made.dtype, made.shape, [=](const Index& place) {
          if (type == Type::kInt)
            return AddInt(Scaled(place[0], static_cast<int64_t>(step)), Int(static_cast<int64_t>(start)));
          return Binary("add", Binary("mul", ToType(place[0], Type::kFloat), Float(step)), Float(start));
        }));
    return true;
  }
  if (base == "linspace") {
    const double start = Number(node, "start", 0), end = Number(node, "end", 1);
    const double step = made.shape[0] > 1 ? (end - start) / static_cast<double>(made.shape[0] - 1) : 0;
    Set(node, Lazy(
                  made.dtype, made.shape,
                  [=](const Index& place) {
                    return ToType(Binary("add", Binary("mul", ToType(place[0], Type::kFloat), Float(step)),
                                         Float(start)),
                                  type);
                  },
                  2));
    return true;
  }
  if (base == "eye") {
    Set(node, Lazy(made.dtype, made.shape, [=](const Index& place) {
          return Select(Compare("equal", place[0], place[1]), ToType(Float(1), type), ToType(Float(0), type));
        }));
    return true;
  }
  if (base == "rand" || base == "randn" || base == "randint" || base == "randperm" || base == "bernoulli" ||
      base == "multinomial")
    throw Unsupported("`" + node.op + "` draws random numbers");
  return false;
}

}  // namespace kevin::search
