#include "policies/search/cuda_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

namespace kevin::search {
namespace {

// Buffers that a stage loads from and stores to.
class CudaBufferUse {
 public:
  explicit CudaBufferUse(const Stage& stage) { Visit(stage); }
  std::set<int> reads, writes;

 private:
  void Read(const ExprPtr& expr) {
    if (!expr) return;
    ForEachNode(expr, [&](const Expr& node) {
      if (node.op == "load") reads.insert(node.id);
    });
  }
  void Write(const std::vector<Store>& stores) {
    for (const Store& store : stores) {
      writes.insert(store.buffer);
      for (const ExprPtr& expr : {store.offset, store.value, store.guard}) Read(expr);
    }
  }
  void Visit(const Stage& stage) {
    std::visit([&](const auto& work) { Of(work); }, stage.work);
  }
  void Of(const Pointwise& work) { Write(work.stores); }
  void Of(const Reduction& work) {
    for (const Accumulator& accumulator : work.accumulators) Read(accumulator.value);
    Write(work.outer_stores);
    Write(work.inner_stores);
  }
  void Of(const Contraction& work) {
    Read(work.lhs);
    Read(work.rhs);
    for (const ExprPtr& limit : work.k_limits) Read(limit);
    Write(work.stores);
  }
  void Of(const Scan& work) {
    Read(work.value);
    Write(work.stores);
  }
  void Of(const Attention& work) {
    for (const ExprPtr& expr : {work.query, work.key, work.score, work.value}) Read(expr);
    Write(work.stores);
  }
  void Of(const Repeat& work) {
    for (const Stage& stage : work.body) Visit(stage);
  }
};

std::string CudaElementType(const std::string& dtype) {
  if (dtype == "float32") return "float";
  if (dtype == "float16") return "__half";
  if (dtype == "bfloat16") return "__nv_bfloat16";
  if (dtype == "int64") return "long";
  if (dtype == "int32") return "int";
  if (dtype == "bool") return "bool";
  throw Unsupported("tensors of " + dtype + " cannot be written in CUDA");
}

// Names "v12" and "r12" carry the number of a loop variable: numbered anew in the order of their first use, so that equal
// stages have equal texts.
std::string WithLocalNumbers(const std::string& body) {
  static constexpr std::array<bool, 256> kIsWord = [] {
    std::array<bool, 256> is_word{};
    for (const char c : std::string_view("_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"))
      is_word[static_cast<unsigned char>(c)] = true;
    return is_word;
  }();
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  std::map<std::string, std::string> numbers;
  std::string text;
  text.reserve(body.size());
  for (size_t at = 0; at < body.size();) {
    size_t word = at;
    while (word < body.size() && !kIsWord[static_cast<unsigned char>(body[word])]) ++word;
    size_t end = word;
    while (end < body.size() && kIsWord[static_cast<unsigned char>(body[end])]) ++end;
    const bool is_local = end - word > 1 && (body[word] == 'v' || body[word] == 'r') &&
                          std::all_of(body.begin() + static_cast<long>(word) + 1,
                                      body.begin() + static_cast<long>(end), is_digit);
    text.append(body, at, (is_local ? word + 1 : end) - at);
    if (is_local)
      text += numbers.try_emplace(body.substr(word + 1, end - word - 1), std::to_string(numbers.size()))
                  .first->second;
    at = end;
  }
  return text;
}

std::string CudaSignature(const Task& task) {
  if (!task.signature.empty()) return task.signature;
  std::string list;
  for (const TaskArgument& argument : task.arguments)
    list += (list.empty() ? "" : ", ") + argument.cpp_type + " " + argument.name;
  return "void launch(" + list + ")";
}

}  // namespace

// --- CudaText ---

CudaText::CudaText(const Program& program, const Task& task, const Setting& setting, CudaSharing sharing,
                   std::vector<int> owners)
    : program_(program),
      task_(task),
      setting_(setting),
      sharing_(sharing),
      table_("int"),
      owners_(std::move(owners)) {
  if (program.workspace_bytes > 0)
    workspace_lines_.push_back(fmt::format("char* pool = workspace<char>({}L);", program.workspace_bytes));
}

std::string CudaText::Number(int64_t value) const {
  constexpr int64_t kHigh = std::numeric_limits<int32_t>::max();
  if (value > kHigh || value < -kHigh) return fmt::format("{}L", value);
  return shares() ? Hole(value) : std::to_string(value);
}

std::string CudaText::Float(double value) const {
  const std::string literal = CudaFloat(value);
  return shares() && !IsCommonFloat(value) ? FloatHole(literal) : literal;
}

int64_t CudaText::KnobValue(const std::string& name, int64_t fallback) const {
  const auto found = setting_.find(CudaKnobName(name, stage_number_));
  return found == setting_.end() ? fallback : found->second;
}

std::string CudaText::KnobText(const std::string& name, int64_t fallback) const {
  const std::string full = CudaKnobName(name, stage_number_);
  return setting_.count(full) ? full : std::to_string(fallback);
}

void CudaText::AddLine(const std::string& line) {
  lines_.emplace_back(line, 0);
  if (recipe_ != nullptr) recipe_->steps.emplace_back().line = line;
}

std::string CudaText::AddWorkspace(const std::string& type, const std::string& count, bool zeroed) {
  const std::string name = fmt::format("w{}", workspaces_++);
  const std::string text =
      fmt::format("{0}* {1} = {2}workspace<{0}>({3});", type, name, zeroed ? "zeroed_" : "", count);
  if (zeroed) {
    lines_.emplace_back(text, 0);
  } else {
    workspace_lines_.push_back(text);
  }
  if (recipe_ != nullptr) {
    CudaRecipe::Step& step = recipe_->steps.emplace_back();
    step.type = type, step.count = count, step.zeroed = zeroed;
    recipe_->workspaces.push_back(name);
  }
  return name;
}

void CudaText::Repeat(const CudaRecipe& recipe, const std::vector<int>& buffers) {
  std::vector<std::string> workspaces;
  for (const CudaRecipe::Step& step : recipe.steps) {
    if (!step.line.empty()) {
      AddLine(step.line);
      continue;
    }
    if (!step.type.empty()) {
      workspaces.push_back(AddWorkspace(step.type, step.count, step.zeroed));
      continue;
    }
    std::vector<std::string> arguments;
    for (const CudaRecipe::Argument& argument : step.arguments)
      arguments.push_back(argument.buffer >= 0
                              ? BufferArgument(buffers.at(static_cast<size_t>(argument.buffer)))
                              : workspaces.at(static_cast<size_t>(argument.workspace)));
    lines_.emplace_back("", static_cast<int64_t>(table_.AddAgain(step.call, arguments)));
  }
}

void CudaText::AddDeclarations(const std::string& text) {
  if (std::find(declarations_.begin(), declarations_.end(), text) == declarations_.end())
    declarations_.push_back(text);
}

void CudaText::BeginStage(int number) {
  const auto at = static_cast<size_t>(number);
  stage_number_ = at < owners_.size() ? owners_[at] : number;
}

std::string CudaText::ElementType(int buffer) const {
  return CudaElementType(program_.buffers.at(buffer).dtype);
}

int CudaText::ElementBytes(int buffer) const {
  const std::string& dtype = program_.buffers.at(buffer).dtype;
  return dtype == "int64" ? 8 : dtype == "bool" ? 1 : dtype == "float16" || dtype == "bfloat16" ? 2 : 4;
}

std::string CudaText::BufferArgument(int buffer) const {
  const Buffer& one = program_.buffers.at(buffer);
  const auto found = common_offsets_.find(buffer);
  const std::string further = found == common_offsets_.end() ? "" : fmt::format(" + {}", found->second);
  if (one.argument >= 0) {
    const std::string& name = task_.arguments.at(one.argument).name;
    return (one.base_symbol.empty() ? name : name + " + " + one.base_symbol) + further;
  }
  if (one.place >= 0) return fmt::format("({}*)(pool + {}){}", ElementType(buffer), one.place, further);
  return fmt::format("v{}{}", buffer, further);
}

std::string CudaText::Finish() {
  std::string text;
  for (const std::string& declaration : declarations_) text += declaration + "\n";
  text += table_.Definitions() + CudaSignature(task_) + " {\n";
  for (const std::string& line : workspace_lines_) text += line + "\n";
  for (size_t i = 0; i < program_.buffers.size(); ++i) {
    const Buffer& buffer = program_.buffers[i];
    if (buffer.argument < 0 && buffer.place < 0 && buffer.elements > 0) {
      text += fmt::format("{0}* v{1} = workspace<{0}>({2}L);\n", ElementType(static_cast<int>(i)), i,
                          buffer.elements);
    }
  }
  for (const auto& [line, call] : lines_)
    text += line.empty() ? table_.Call(static_cast<size_t>(call)) + ";\n" : line + "\n";
  return text + "}\n";
}

std::string CudaKnobName(const std::string& name, int stage) { return fmt::format("{}_{}", name, stage); }

// --- CudaKernel ---

CudaKernel::CudaKernel(CudaText& text, const Stage& stage) : text_(text) {
  CudaBufferUse use(stage);
  reads_ = std::move(use.reads);
  writes_ = std::move(use.writes);
}

std::string CudaKernel::Buffer(int buffer) {
  const auto [found, is_new] = names_.try_emplace(buffer, fmt::format("b{}", names_.size()));
  if (is_new) {
    const std::string type = text_.ElementType(buffer);
    const bool writes = writes_.count(buffer) > 0, reads = reads_.count(buffer) > 0;
    AddParameter(fmt::format("{}{}*{} {}", writes ? "" : "const ", type,
                             writes && reads ? "" : " __restrict__", found->second),
                 text_.BufferArgument(buffer));
    argument_buffers_.back() = buffer;
  }
  return found->second;
}

void CudaKernel::AddParameter(const std::string& parameter, const std::string& argument) {
  parameters_.push_back(parameter);
  arguments_.push_back(argument);
  argument_buffers_.push_back(-1);
}

std::string CudaKernel::Fresh(const std::string& prefix) {
  return fmt::format("{}{}", prefix, fresh_[prefix]++);
}

std::string CudaKernel::RepeatVariable(int variable) {
  const auto known = repeat_names_.find(variable);
  if (known != repeat_names_.end()) return known->second;
  const auto outside = text_.repeat_variables().find(variable);
  if (outside == text_.repeat_variables().end())
    throw Error(ExitCode::kBroken, fmt::format("variable {} has no value here", variable));
  const std::string name = fmt::format("turn{}", repeat_names_.size());
  AddParameter("int " + name, outside->second);
  return repeat_names_[variable] = name;
}

void CudaKernel::Launch(const std::string& name, const std::string& body, const std::string& grid,
                        const std::string& block, const std::string& bounds, const std::string& shared,
                        const std::string& attributes) {
  const std::string head = fmt::format("__global__ {}{}void __launch_bounds__({})", attributes,
                                       attributes.empty() ? "" : " ", bounds);
  const std::string launch = shared.empty() ? fmt::format("<<<{}, {}>>>", grid, block)
                                            : fmt::format("<<<{}, {}, {}>>>", grid, block, shared);
  const size_t call = text_.table().Add(name, head, WithLocalNumbers(body), parameters_, arguments_, launch);
  text_.lines_.emplace_back("", static_cast<int64_t>(call));
  if (text_.recipe_ != nullptr) Note(call, *text_.recipe_);
}

void CudaKernel::Note(size_t call, CudaRecipe& recipe) const {
  CudaRecipe::Step& step = recipe.steps.emplace_back();
  step.call = call;
  const auto place = [](const auto& list, const auto& one) {
    const auto found = std::find(list.begin(), list.end(), one);
    return found == list.end() ? -1 : static_cast<int>(found - list.begin());
  };
  for (size_t i = 0; i < arguments_.size(); ++i) {
    CudaRecipe::Argument& argument = step.arguments.emplace_back();
    argument.buffer = place(recipe.buffers, argument_buffers_[i]);
    argument.workspace = place(recipe.workspaces, arguments_[i]);
    recipe.is_repeatable = recipe.is_repeatable && (argument.buffer >= 0 || argument.workspace >= 0);
  }
}

}  // namespace kevin::search
