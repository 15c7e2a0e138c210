#include "env/problem/python_operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace kevin {
namespace {

bool IsWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// The word at `at`.
std::string_view WordAt(std::string_view text, size_t at) {
  size_t end = at;
  while (end < text.size() && IsWord(text[end])) ++end;
  return text.substr(at, end - at);
}

// In torch.nn.functional under the same name with the same positional arguments.
constexpr std::array kFunctional = {"adaptive_avg_pool2d",
                                    "adaptive_avg_pool3d",
                                    "avg_pool2d",
                                    "avg_pool3d",
                                    "gelu",
                                    "glu",
                                    "hardsigmoid",
                                    "hardswish",
                                    "hardtanh",
                                    "leaky_relu",
                                    "linear",
                                    "mish",
                                    "pad",
                                    "relu6",
                                    "scaled_dot_product_attention",
                                    "silu",
                                    "softplus",
                                    "softshrink"};
// The same up to some number of arguments; later ones differ. Python's `torch` has some losses too, without their mean.
struct FirstArguments {
  const char* name;
  int count;
};
constexpr std::array kFunctionalAtFirst = {FirstArguments{"elu", 2},
                                           FirstArguments{"hinge_embedding_loss", 3},
                                           FirstArguments{"huber_loss", 2},
                                           FirstArguments{"kl_div", 2},
                                           FirstArguments{"l1_loss", 2},
                                           FirstArguments{"mse_loss", 2},
                                           FirstArguments{"smooth_l1_loss", 2},
                                           FirstArguments{"margin_ranking_loss", 4},
                                           FirstArguments{"cosine_embedding_loss", 4},
                                           FirstArguments{"triplet_margin_loss", 7}};
// Under no name in Python's torch and torch.nn.functional with these arguments.
constexpr std::array kAtenOnly = {"adaptive_max_pool2d",
                                  "adaptive_max_pool3d",
                                  "col2im",
                                  "im2col",
                                  "max_pool2d_with_indices",
                                  "max_pool3d_with_indices",
                                  "reflection_pad1d",
                                  "reflection_pad2d",
                                  "reflection_pad3d",
                                  "replication_pad1d",
                                  "replication_pad2d",
                                  "replication_pad3d",
                                  "upsample_bicubic2d",
                                  "upsample_bilinear2d",
                                  "upsample_linear1d",
                                  "upsample_nearest1d",
                                  "upsample_nearest2d",
                                  "upsample_nearest3d",
                                  "upsample_trilinear3d"};

template <size_t N>
bool IsOneOf(std::string_view name, const std::array<const char*, N>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Arguments of the call whose "(" is at `at`.
int CountArguments(std::string_view text, size_t at) {
  int depth = 0, count = 0;
  bool has_text = false;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '(' || c == '[') {
      has_text |= depth > 0;
      ++depth;
    } else if (c == ')' || c == ']') {
      if (--depth == 0) break;
    } else if (c == ',' && depth == 1) {
      ++count;
    } else {
      has_text |= !std::isspace(static_cast<unsigned char>(c));
    }
  }
  return has_text ? count + 1 : 0;
}

// "F.linear" of `torch.linear`, whose call begins at `call`.
std::string OperatorName(std::string_view name, std::string_view text, size_t call) {
  if (IsOneOf(name, kFunctional)) return fmt::format("F.{}", name);
  const int count = CountArguments(text, call);
  for (const FirstArguments& one : kFunctionalAtFirst) {
    if (name == one.name) return (count <= one.count ? "F." : "torch.ops.aten.") + std::string(name);
  }
  if (name == "cross_entropy_loss")
    return count <= 2 ? "F.cross_entropy" : "torch.ops.aten.cross_entropy_loss";
  if (name == "log_sigmoid") return "F.logsigmoid";
  if (IsOneOf(name, kAtenOnly)) return fmt::format("torch.ops.aten.{}", name);
  for (const std::string_view module : {"linalg_", "special_", "fft_"}) {
    if (name.starts_with(module))
      return fmt::format("torch.{}.{}", module.substr(0, module.size() - 1), name.substr(module.size()));
  }
  return fmt::format("torch.{}", name);
}

// A slice of a shape is a list in TorchScript and a tuple in Python: "[n] + x.shape[2:]".
std::string ListOfShapes(const std::string& text) {
  constexpr std::string_view kShape = ".shape[";
  std::string out = text;
  for (size_t at = out.find(kShape); at != std::string::npos; at = out.find(kShape, at + 6)) {
    const size_t close = out.find(']', at);
    if (close == std::string::npos || out.substr(at, close - at).find(':') == std::string::npos) continue;
    size_t begin = at;
    while (begin > 0 && IsWord(out[begin - 1])) --begin;
    out.insert(close + 1, ")");
    out.insert(begin, "list(");
    at += 5;
  }
  return out;
}

}  // namespace

std::string ReplaceWords(std::string_view text, const std::function<std::string(std::string_view)>& replace) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const bool begins = IsWord(text[at]) && !std::isdigit(static_cast<unsigned char>(text[at])) &&
                        (at == 0 || (!IsWord(text[at - 1]) && text[at - 1] != '.'));
    if (!begins) {
      out += text[at++];
      continue;
    }
    const std::string_view word = WordAt(text, at);
    out += replace(word);
    at += word.size();
  }
  return out;
}

std::string PythonOperators(const std::string& torchscript) {
  constexpr std::string_view kTorch = "torch.";
  std::string out;
  for (size_t at = 0; at < torchscript.size();) {
    const bool is_operator = std::string_view(torchscript).substr(at).starts_with(kTorch) &&
                             (at == 0 || (!IsWord(torchscript[at - 1]) && torchscript[at - 1] != '.'));
    if (!is_operator) {
      out += torchscript[at++];
      continue;
    }
    const std::string_view name = WordAt(torchscript, at + kTorch.size());
    at += kTorch.size() + name.size();
    out += OperatorName(name, torchscript, at);
  }
  return ListOfShapes(out);
}

}  // namespace kevin
