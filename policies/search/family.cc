#include "policies/search/family.h"

#include <fmt/format.h>

#include <cstdlib>
#include <set>

#include "policies/search/term.h"

namespace kevin::search {

std::optional<Kernel> RecogniseElementwise(const Computation&);
std::optional<Kernel> RecogniseReduction(const Computation&);
std::optional<Kernel> RecogniseExtreme(const Computation&);
std::optional<Kernel> RecogniseNormalisation(const Computation&);
std::optional<Kernel> RecogniseScan(const Computation&);
std::optional<Kernel> RecogniseMatmul(const Computation&);
std::optional<Kernel> RecogniseCudaElementwise(const Computation&);
std::optional<Kernel> RecogniseCudaMatvec(const Computation&);
std::optional<Kernel> RecogniseCudaReduction(const Computation&);
std::optional<Kernel> RecogniseCudaExtreme(const Computation&);
std::optional<Kernel> RecogniseCudaNormalisation(const Computation&);
std::optional<Kernel> RecogniseCudaScan(const Computation&);
std::optional<Kernel> RecogniseCudaMatmul(const Computation&);

const std::vector<Family>& Families(const std::string& kind) {
  static const char* const kElementwise =
      "activations and arithmetic on tensors of one shape or broadcast ones";
  static const char* const kReduction = "sum, mean, max, min, norms over neighbouring dimensions";
  static const char* const kExtreme = "argmax, argmin";
  static const char* const kNormalisation = "softmax, log_softmax, layer, RMS and L2 norms";
  static const char* const kScan = "cumsum, cumprod";
  static const char* const kMatmul =
      "products of plain or transposed matrices, batched or not, and matrix times vector";
  static const std::map<std::string, std::vector<Family>> kFamilies = {
      {"cpp",
       {{"elementwise", kElementwise, &RecogniseElementwise, true},
        {"reduction", kReduction, &RecogniseReduction},
        {"extreme", kExtreme, &RecogniseExtreme},
        {"softmax and norm", kNormalisation, &RecogniseNormalisation},
        {"scan", kScan, &RecogniseScan},
        {"matmul", kMatmul, &RecogniseMatmul}}},
      {"cuda",
       {{"elementwise", kElementwise, &RecogniseCudaElementwise, true},
        {"matvec", "a matrix times a vector", &RecogniseCudaMatvec},
        {"reduction", kReduction, &RecogniseCudaReduction},
        {"extreme", kExtreme, &RecogniseCudaExtreme},
        {"softmax and norm", kNormalisation, &RecogniseCudaNormalisation},
        {"scan", kScan, &RecogniseCudaScan},
        {"matmul", kMatmul, &RecogniseCudaMatmul}}}};
  static const std::vector<Family> kNone;
  const auto found = kFamilies.find(kind);
  return found == kFamilies.end() ? kNone : found->second;
}

std::string ElementOf(const Task& task) {
  for (const TaskArgument& argument : task.arguments) {
    for (const char* type : {"float", "_Float16", "bf16", "__half", "__nv_bfloat16"}) {
      const std::string pointer = std::string(type) + "*";
      if (argument.cpp_type == pointer || argument.cpp_type == "const " + pointer) return type;
    }
  }
  return "float";
}

std::string Name(int input) { return "in" + std::to_string(input); }

namespace {

// One text for each of the task's tensors, with commas between them.
std::string Tensors(const Task& task,
                    const std::function<std::string(const TaskArgument&, const std::string& name)>& text) {
  std::string all;
  int inputs = 0, outputs = 0;
  for (const TaskArgument& argument : task.arguments) {
    const bool is_output = argument.role == "output";
    all += (all.empty() ? "" : ", ") +
           text(argument, is_output ? "out" + std::to_string(outputs++) : Name(inputs++));
  }
  return all;
}

}  // namespace

std::string LaunchHead(const Task& task) {
  const auto parameter = [](const TaskArgument& argument, const std::string& name) {
    return argument.cpp_type + " " + name;
  };
  return (task.kind == "cuda" ? "void launch(" : "extern \"C\" void launch(") + Tensors(task, parameter) +
         ")";
}

std::string KernelParameters(const Task& task) {
  return Tensors(task, [](const TaskArgument& argument, const std::string& name) {
    return argument.cpp_type + " __restrict__ " + name;
  });
}

std::string KernelArguments(const Task& task) {
  return Tensors(task, [](const TaskArgument&, const std::string& name) { return name; });
}

int Integer(const Setting& setting, const std::string& knob) { return std::atoi(setting.at(knob).c_str()); }

bool Is(const Setting& setting, const std::string& knob, const char* value) {
  return setting.at(knob) == value;
}

std::string Fill(std::string text, const std::map<std::string, std::string>& values) {
  std::string filled;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text[at] == '{' ? text.find('}', at) : std::string::npos;
    const auto value =
        end == std::string::npos ? values.end() : values.find(text.substr(at + 1, end - at - 1));
    if (value == values.end()) {
      filled += text[at++];
    } else {
      filled += value->second;
      at = end + 1;
    }
  }
  return filled;
}

bool IsFull(const Term& leaf, const std::vector<Dim>& shape) {
  if (Count(leaf.shape) != Count(shape)) return false;
  int64_t stride = 1;
  for (size_t i = leaf.shape.size(); i-- > 0;) {
    if (leaf.shape[i].size != 1 && leaf.strides[i] != stride) return false;
    stride *= leaf.shape[i].size;
  }
  return true;
}

Motion MotionOver(const Term& leaf, const std::vector<Dim>& shape, size_t begin, size_t end) {
  const size_t missing = shape.size() - leaf.shape.size();
  bool moves = false, in_step = true;
  int64_t stride = 1;
  for (size_t i = end; i-- > begin;) {
    if (shape[i].size == 1) continue;
    const int64_t own = i < missing || leaf.shape[i - missing].size == 1 ? 0 : leaf.strides[i - missing];
    moves |= own != 0;
    in_step &= own == stride;
    stride *= shape[i].size;
  }
  return !moves ? Motion::kConstant : in_step ? Motion::kInStep : Motion::kOther;
}

ReducedLayout LayoutOf(const std::vector<Dim>& shape, const std::vector<int>& dims) {
  ReducedLayout layout;
  if (dims.empty() || dims.back() - dims.front() + 1 != static_cast<int>(dims.size())) {
    throw Unsupported("a reduction over dimensions that are not neighbours");
  }
  layout.begin = static_cast<size_t>(dims.front());
  layout.end = static_cast<size_t>(dims.back()) + 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    (i < layout.begin ? layout.outer : i < layout.end ? layout.terms : layout.inner) *= shape[i].size;
  }
  layout.outer_text = CountText(shape, 0, layout.begin);
  layout.terms_text = CountText(shape, layout.begin, layout.end);
  layout.inner_text = CountText(shape, layout.end, shape.size());
  return layout;
}

ReductionForm FormOf(const std::string& op) {
  if (op == "max") return {"-__builtin_inff()", "NanMax($0, $1)"};
  if (op == "min") return {"__builtin_inff()", "NanMin($0, $1)"};
  return {"0.0f", "$0 + $1"};
}

std::string Combine(const ReductionForm& form, const std::string& a, const std::string& b) {
  return Spell(form.combine, {a, b});
}

namespace {

void Visit(const TermPtr& term, std::set<std::string>& seen,
           const std::function<void(const TermPtr&)>& visit) {
  if (!seen.insert(term->key).second) return;
  for (const TermPtr& arg : term->args) Visit(arg, seen, visit);
  visit(term);
}

std::vector<TermPtr> Collect(const TermPtr& root, const std::function<bool(const Term&)>& is_wanted) {
  std::vector<TermPtr> found;
  std::set<std::string> seen;
  Visit(root, seen, [&](const TermPtr& term) {
    if (is_wanted(*term)) found.push_back(term);
  });
  return found;
}

}  // namespace

std::vector<TermPtr> Leaves(const TermPtr& term) {
  return Collect(term, [](const Term& t) { return t.op == "leaf"; });
}
std::vector<TermPtr> Reductions(const TermPtr& term) { return Collect(term, &IsReduction); }
bool Contains(const TermPtr& term, const std::function<bool(const Term&)>& is_wanted) {
  return !Collect(term, is_wanted).empty();
}

}  // namespace kevin::search
