// Tensors made of numbers: constants and ramps, evaluated where they are read.

#include <algorithm>
#include <cmath>

#include "policies/search/lowering.h"

namespace kevin::search {
namespace {

// Windows of signal processing over i / n, where n counts the steps of a period. False for others.
bool SetWindow(Lowering& at, const GraphNode& node) {
  const GraphValue& made = at.ResultOf(node);
  const int64_t length = made.shape[0];
  const bool is_periodic = at.Flag(node, "periodic", true);
  const auto steps = static_cast<double>(is_periodic ? length : std::max<int64_t>(length - 1, 1));
  // a0 - a1 * cos(2 pi x) + a2 * cos(4 pi x)
  double a0 = 0, a1 = 0, a2 = 0;
  if (node.op == "hann_window") {
    a0 = 0.5, a1 = 0.5;
  } else if (node.op == "hamming_window") {
    a0 = at.Number(node, "alpha", 0.54), a1 = at.Number(node, "beta", 0.46);
  } else if (node.op == "blackman_window") {
    a0 = 0.42, a1 = 0.5, a2 = 0.08;
  } else if (node.op != "bartlett_window") {
    return false;
  }
  const bool is_bartlett = node.op == "bartlett_window";
  at.Set(node, at.Lazy(
                   made.dtype, made.shape,
                   [=](const Index& place) {
                     const ExprPtr x = Binary("mul", ToType(place[0], Type::kFloat), Float(1 / steps));
                     if (length == 1) return Float(1);
                     if (is_bartlett) {
                       const ExprPtr gap = Unary("abs", Binary("sub", Binary("mul", x, Float(2)), Float(1)));
                       return Binary("sub", Float(1), gap);
                     }
                     const auto cosine = [&](double turns) {
                       return Unary("cos", Binary("mul", x, Float(turns * 2 * M_PI)));
                     };
                     const ExprPtr first = Binary("sub", Float(a0), Binary("mul", Float(a1), cosine(1)));
                     return a2 == 0 ? first : Binary("add", first, Binary("mul", Float(a2), cosine(2)));
                   },
                   20));
  return true;
}

}  // namespace

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
  if (base == "logspace") {
    const double start = Number(node, "start", 0), end = Number(node, "end", 1),
                 root = Number(node, "base", 10);
    const double step = made.shape[0] > 1 ? (end - start) / static_cast<double>(made.shape[0] - 1) : 0;
    Set(node, Lazy(
                  made.dtype, made.shape,
                  [=](const Index& place) {
                    const ExprPtr exponent = Binary(
                        "add", Binary("mul", ToType(place[0], Type::kFloat), Float(step)), Float(start));
                    return ToType(Unary("exp2", Binary("mul", exponent, Float(std::log2(root)))), type);
                  },
                  10));
    return true;
  }
  if (base.ends_with("_window")) return SetWindow(*this, node);
  if (base == "fft_fftfreq" || base == "fft_rfftfreq") {
    const int64_t count = Integer(node, "n", 1), positive = (count + 1) / 2;
    const double step = 1 / (static_cast<double>(count) * Number(node, "d", 1));
    const bool wraps = base == "fft_fftfreq";
    Set(node, Lazy(
                  made.dtype, made.shape,
                  [=](const Index& place) {
                    const ExprPtr is_positive = Compare("less", place[0], Int(positive));
                    const ExprPtr turn =
                        wraps ? Select(is_positive, place[0], AddInt(place[0], Int(-count))) : place[0];
                    return Binary("mul", ToType(turn, Type::kFloat), Float(step));
                  },
                  3));
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
