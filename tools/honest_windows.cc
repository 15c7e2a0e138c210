#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>

#include "tools/honest_families.h"

// Convolutions and pooling of one to three dimensions: one direct kernel each, which gets its window from the
// call in the reference's text and adds up in several orders.

namespace kevin {
namespace {

// The arguments of `torch.NAME(...)` in a text; empty without such a call. `groups=...` comes as it stands.
std::vector<std::string> CallArguments(const std::string& text, const std::string& name) {
  const std::string head = "torch." + name + "(";
  const size_t start = text.find(head);
  if (start == std::string::npos) return {};
  std::vector<std::string> arguments(1);
  int depth = 0;
  for (size_t at = start + head.size(); at < text.size(); ++at) {
    const char c = text[at];
    if (depth == 0 && c == ')') break;
    depth += (c == '(' || c == '[') - (c == ')' || c == ']');
    if (depth == 0 && c == ',') {
      arguments.emplace_back();
    } else if (c != ' ') {
      arguments.back() += c;
    }
  }
  return arguments;
}

// "[2, 3]" as the last ones of three dimensions, the others `missing`; "" and "None" are all `missing`.
std::array<std::string, 3> Three(const std::string& list, size_t rank, const char* missing) {
  std::array<std::string, 3> three = {missing, missing, missing};
  if (list.empty() || list[0] != '[') return three;
  size_t at = 1;
  for (size_t i = 3 - rank; i < 3; ++i) {
    const size_t end = list.find_first_of(",]", at);
    three[i] = list.substr(at, end - at);
    at = end + 1;
  }
  return three;
}

std::array<std::string, 3> Three(const std::vector<std::string>& shape, const char* missing) {
  std::array<std::string, 3> three = {missing, missing, missing};
  const size_t rank = shape.size() - 2;
  std::copy(shape.begin() + 2, shape.end(), three.begin() + static_cast<std::ptrdiff_t>(3 - rank));
  return three;
}

std::string Braced(const std::array<std::string, 3>& three) {
  return fmt::format("{{{}}}", fmt::join(three, ", "));
}

constexpr const char* kWindow = R"(struct Window {
  long batch, in, out, groups;
  long size[3], result[3], kernel[3], stride[3], pad[3], dilation[3];
};

// Where tap k of output o looks, or -1 outside.
static inline long Place(const Window& w, int axis, long o, long k) {
  const long at = o * w.stride[axis] - w.pad[axis] + k * w.dilation[axis];
  return at >= 0 && at < w.size[axis] ? at : -1;
}
)";

// A row of outputs after the other; its terms (channel and tap) in ranges of $PARTS, in the order of $CHANNEL
// and $TAP, which are written with term, terms, taps and channels.
constexpr const char* kConvolution = R"(#include <vector>

$WINDOW
// The input that reaches output o of a transposed one through tap k, or -1.
static inline long Source(const Window& w, int axis, long o, long k) {
  const long at = o + w.pad[axis] - k * w.dilation[axis];
  return at >= 0 && at % w.stride[axis] == 0 && at / w.stride[axis] < w.size[axis] ? at / w.stride[axis] : -1;
}

static void AddRow(const Window& w, bool transposed, float weight, long k, const float* x, float* sum) {
  if (transposed) {
    for (long i = 0; i < w.size[2]; ++i) {
      const long o = i * w.stride[2] - w.pad[2] + k * w.dilation[2];
      if (o >= 0 && o < w.result[2]) sum[o] += weight * x[i];
    }
    return;
  }
  for (long o = 0; o < w.result[2]; ++o) {
    const long i = Place(w, 2, o, k);
    if (i >= 0) sum[o] += weight * x[i];
  }
}

// One row of one output channel: `weights` has channel c and tap t at [c * step + t].
static void WindowRow(const Window& w, bool transposed, const float* x, const float* weights, long step, long d, long h,
                float* sum) {
  const long channels = w.in / w.groups, taps = w.kernel[0] * w.kernel[1] * w.kernel[2], terms = channels * taps;
  const long plane = w.size[1] * w.size[2], parts = $PARTS < terms ? $PARTS : terms;
  std::vector<float> part(w.result[2]);
  for (long p = 0; p < parts; ++p) {
    for (float& value : part) value = 0;
    for (long term = p * terms / parts; term < (p + 1) * terms / parts; ++term) {
      const long c = $CHANNEL, t = $TAP;
      const long kd = t / (w.kernel[1] * w.kernel[2]), kh = t / w.kernel[2] % w.kernel[1];
      const long id = transposed ? Source(w, 0, d, kd) : Place(w, 0, d, kd);
      const long ih = transposed ? Source(w, 1, h, kh) : Place(w, 1, h, kh);
      if (id < 0 || ih < 0) continue;
      AddRow(w, transposed, weights[c * step + t], t % w.kernel[2], x + (c * w.size[0] + id) * plane + ih * w.size[2],
             part.data());
    }
    for (long o = 0; o < w.result[2]; ++o) sum[o] += part[o];
  }
}

static void Convolve(const Window& w, bool transposed, const float* x, const float* weight, const float* bias,
                     float* out) {
  const long channels = w.in / w.groups, outputs = w.out / w.groups;
  const long taps = w.kernel[0] * w.kernel[1] * w.kernel[2];
  const long plane = w.size[0] * w.size[1] * w.size[2], rows = w.result[0] * w.result[1];
#pragma omp parallel for
  for (long row = 0; row < w.batch * w.out * rows; ++row) {
    const long h = row % w.result[1], d = row % rows / w.result[1], o = row / rows % w.out, b = row / rows / w.out;
    const long group = o / outputs;
    float* sum = out + row * w.result[2];
    for (long i = 0; i < w.result[2]; ++i) sum[i] = bias ? bias[o] : 0;
    // As torch lays them out: [out][in / groups][taps], transposed [in][out / groups][taps].
    const float* weights = transposed ? weight + (group * channels * outputs + o % outputs) * taps
                                      : weight + o * channels * taps;
    WindowRow(w, transposed, x + (b * w.in + group * channels) * plane, weights, transposed ? outputs * taps : taps, d, h,
        sum);
  }
}

$LAUNCH {
$CALLS
}
)";

// $FIRST, then $MERGE(best, value) over the taps in the order of $TAP, then $FINISH.
constexpr const char* kPooling = R"($WINDOW
$LAUNCH {
  const Window w = $VALUES;
  const long taps = w.kernel[0] * w.kernel[1] * w.kernel[2];
  const long results = w.result[0] * w.result[1] * w.result[2];
#pragma omp parallel for
  for (long row = 0; row < w.batch * w.out; ++row) {
    const float* image = $IN + row * w.size[0] * w.size[1] * w.size[2];
    for (long i = 0; i < results; ++i) {
      float best = $FIRST;
      for (long term = 0; term < taps; ++term) {
        const long t = $TAP;
        const long d = Place(w, 0, i / (w.result[1] * w.result[2]), t / (w.kernel[1] * w.kernel[2]));
        const long h = Place(w, 1, i / w.result[2] % w.result[1], t / w.kernel[2] % w.kernel[1]);
        const long at = Place(w, 2, i % w.result[2], t % w.kernel[2]);
        if (d < 0 || h < 0 || at < 0) continue;
        const float value = image[(d * w.size[1] + h) * w.size[2] + at];
        best = $MERGE;
      }
      $OUT[row * results + i] = $FINISH;
    }
  }
}
)";

// A convolution's or a pooling's window as the initialiser of the candidate's struct.
std::string Initialiser(const std::vector<std::string>& x, const std::vector<std::string>& result,
                        const std::array<std::string, 3>& kernel, const std::string& groups,
                        const std::array<std::array<std::string, 3>, 3>& lists) {
  return fmt::format("{{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}}}", x[0], x[1], result[1], groups,
                     Braced(Three(x, "1")), Braced(Three(result, "1")), Braced(kernel), Braced(lists[0]),
                     Braced(lists[1]), Braced(lists[2]));
}

struct ConvolutionCall {
  std::string name;  // "conv2d"
  size_t rank = 0;
  bool is_transposed = false;
  std::vector<std::string> arguments;
};

std::optional<ConvolutionCall> ConvolutionOf(const Problem& problem) {
  for (const bool is_transposed : {true, false}) {
    for (size_t rank = 1; rank <= 3; ++rank) {
      const std::string name = fmt::format("conv{}{}d", is_transposed ? "_transpose" : "", rank);
      const std::vector<std::string> arguments = CallArguments(problem.reference, name);
      if (!arguments.empty()) return ConvolutionCall{name, rank, is_transposed, arguments};
    }
  }
  return std::nullopt;
}

std::string WindowOf(const Problem& problem, const ConvolutionCall& call) {
  const auto argument = [&](size_t i) {
    return i < call.arguments.size() ? call.arguments[i] : std::string();
  };
  const size_t groups_at = 6;
  std::string groups = argument(groups_at).empty() ? "1" : argument(groups_at);
  for (const std::string& one : call.arguments) {
    if (one.starts_with("groups=")) groups = problem.inputs[0].shape[1];
  }
  const size_t dilation_at = call.is_transposed ? 7 : 5;
  const std::vector<std::string>& weight = problem.inputs[1].shape;
  return Initialiser(problem.inputs[0].shape, problem.outputs[0].shape, Three(weight, "1"), groups,
                     {Three(argument(3), call.rank, "1"), Three(argument(4), call.rank, "0"),
                      Three(argument(dilation_at), call.rank, "1")});
}

// Depthwise, then pointwise.
std::string SeparableCalls() {
  return R"(  std::vector<float> channels(B * C * H * W);
  Convolve({B, C, C, C, {1, H, W}, {1, H, W}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}}, false, x, depthwise, nullptr,
           channels.data());
  Convolve({B, C, O, 1, {1, H, W}, {1, H, W}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}}, false, channels.data(),
           pointwise, nullptr, out);)";
}

std::string Calls(const Problem& problem, const ConvolutionCall& call) {
  if (problem.id == "level1/86") return SeparableCalls();
  return fmt::format("  Convolve({}, {}, {}, {}, {}, {});", WindowOf(problem, call), call.is_transposed,
                     problem.inputs[0].name, problem.inputs[1].name,
                     problem.inputs.size() > 2 ? problem.inputs[2].name : "nullptr", problem.outputs[0].name);
}

std::vector<HonestKernel> Convolutions(const Problem& problem, const ConvolutionCall& call) {
  const std::string calls = Calls(problem, call);
  const auto kernel = [&](const char* name, const char* parts, const char* channel, const char* tap) {
    return HonestKernel{
        name,
        HonestSource(
            problem, kConvolution,
            {{"WINDOW", kWindow}, {"PARTS", parts}, {"CHANNEL", channel}, {"TAP", tap}, {"CALLS", calls}})};
  };
  return {kernel("direct, channel by channel", "1", "term / taps", "term % taps"),
          kernel("direct, tap by tap", "1", "term % channels", "term / channels"),
          kernel("direct, backwards", "1", "(terms - 1 - term) / taps", "(terms - 1 - term) % taps"),
          kernel("direct, 4 parts", "4L", "term / taps", "term % taps")};
}

std::vector<HonestKernel> Poolings(const Problem& problem, size_t rank, bool is_maximum,
                                   const std::vector<std::string>& arguments) {
  const auto argument = [&](size_t i) { return i < arguments.size() ? arguments[i] : std::string(); };
  const std::array<std::string, 3> kernel = Three(argument(1), rank, "1");
  const std::string values = Initialiser(problem.inputs[0].shape, problem.outputs[0].shape, kernel, "1",
                                         {Three(argument(2), rank, "1"), Three(argument(3), rank, "0"),
                                          Three(is_maximum ? argument(4) : "", rank, "1")});
  const auto with = [&](const char* name, const char* tap, const char* finish) {
    return HonestKernel{
        name, HonestSource(problem, kPooling,
                           {{"WINDOW", is_maximum ? std::string("#include <cmath>\n\n") + kWindow : kWindow},
                            {"VALUES", values},
                            {"IN", problem.inputs[0].name},
                            {"OUT", problem.outputs[0].name},
                            {"FIRST", is_maximum ? "-INFINITY" : "0"},
                            {"MERGE", is_maximum ? "value > best ? value : best" : "best + value"},
                            {"TAP", tap},
                            {"FINISH", finish}})};
  };
  const char* forwards = "term";
  const char* backwards = "taps - 1 - term";
  if (is_maximum) return {with("tap by tap", forwards, "best"), with("backwards", backwards, "best")};
  return {with("serial sum", forwards, "best / static_cast<float>(taps)"),
          with("backwards", backwards, "best / static_cast<float>(taps)"),
          with("times the reciprocal", forwards, "best * (1.0F / static_cast<float>(taps))")};
}

}  // namespace

std::vector<HonestKernel> HonestWindows(const Problem& problem) {
  if (!problem.id.starts_with("level1/")) return {};
  if (const auto call = ConvolutionOf(problem)) return Convolutions(problem, *call);
  for (size_t rank = 1; rank <= 3; ++rank) {
    for (const bool is_maximum : {true, false}) {
      const auto arguments =
          CallArguments(problem.reference, fmt::format("{}_pool{}d", is_maximum ? "max" : "avg", rank));
      if (!arguments.empty()) return Poolings(problem, rank, is_maximum, arguments);
    }
  }
  return {};
}

}  // namespace kevin
