// The text of a whole program in C++: functions of stages, `launch`, the workspace, knobs.

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "policies/search/common_offsets.h"
#include "policies/search/cpp_text.h"
#include "policies/search/stage_use.h"

namespace kevin::search {
namespace {

constexpr size_t kCppManyStages = 12;   // above, stages share functions even of different sizes
constexpr size_t kCppMostStages = 240;  // above, all that can be shared is: trying less would take too long

void CppWork(const Stage& stage, CppStage& to) {
  if (const auto* pointwise = std::get_if<Pointwise>(&stage.work)) return CppPointwise(*pointwise, to);
  if (const auto* reduction = std::get_if<Reduction>(&stage.work)) return CppReduction(*reduction, to);
  if (const auto* scan = std::get_if<Scan>(&stage.work)) return CppScan(*scan, to);
  if (const auto* attention = std::get_if<Attention>(&stage.work)) return CppAttention(*attention, to);
  const auto& contraction = std::get<Contraction>(stage.work);
  if (!CppContraction(contraction, to)) CppSimpleContraction(contraction, to);
}

// "stage_conv2d_relu"
std::string CppFunctionName(const std::string& name) {
  std::string text = "stage";
  bool gap = true;
  for (const char c : name.substr(0, 40)) {
    const bool is_word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (is_word && gap) text += '_';
    if (is_word) text += c;
    gap = !is_word;
  }
  return text;
}

class CppProgram {
 public:
  CppProgram(const Program& program, const Task& task, const Setting& setting, CppSharing sharing)
      : program_(program), task_(task), setting_(setting), sharing_(sharing), functions_("long") {}

  // Before Write. False: too many functions; not all stages were added, where they can share more.
  bool AddStages() { return Add(program_.stages); }

  std::string Write() {
    const std::string definitions = functions_.Definitions();
    std::string text;
    for (const std::string& helper : helpers_) text += helper + "\n";
    text += definitions + Head() + " {\n" + Threads();
    if (program_.workspace_bytes > 0)
      text += fmt::format("  char* const workspace = Scratch<16>({});\n", program_.workspace_bytes);
    for (const auto& [which, scratch] : scratch_) {
      if (scratch.bytes > 0)
        text += fmt::format("  Scratch<{}>({}{});\n", which, scratch.bytes,
                            scratch.by_thread ? " * threads" : "");
    }
    text += "  team.Reset(threads, 0);\n#pragma omp parallel num_threads(threads)\n  {\n";
    text += "    Worker worker{omp_get_thread_num(), threads, 0};\n";
    size_t next = 0;
    Calls(program_.stages, 2, next, text);
    text += "  }\n";
    return CppWithPrelude("\n" + text + "}\n", setting_.count("LANES") && setting_.at("LANES") == 8);
  }

 private:
  std::string Argument(int argument) const {
    const bool is_output = task_.arguments.at(static_cast<size_t>(argument)).role == "output";
    return fmt::format("{}{}", is_output ? "out" : "in", argument);
  }

  std::string Head() const {
    std::string list;
    for (size_t i = 0; i < task_.arguments.size(); ++i)
      list += fmt::format("{}{} {}", i == 0 ? "" : ", ", task_.arguments[i].cpp_type,
                          Argument(static_cast<int>(i)));
    return fmt::format("extern \"C\" void launch({})", list);
  }

  std::string Threads() const {
    double cycles = 0;
    for (const Stage& stage : program_.stages) cycles += CppCycles(stage);
    if (cycles < kCppFewCycles) return "  const int threads = 1;   // a second one would start too late\n";
    return "  const int threads = omp_get_max_threads() < 64 ? omp_get_max_threads() : 64;\n";
  }

  // The address of the buffer, or of an element of it.
  std::string Pointer(const CppStage& stage, int id, int64_t element) const {
    const Buffer& buffer = program_.buffers.at(static_cast<size_t>(id));
    const std::string further = element == 0 ? "" : fmt::format(" + {}", element);
    if (buffer.argument < 0)
      return fmt::format("({}*)(workspace + {}){}", stage.Element(id), buffer.place, further);
    const std::string name = Argument(buffer.argument);
    if (!buffer.base_symbol.empty()) return name + " + " + buffer.base_symbol + further;
    return buffer.base + element == 0 ? name : fmt::format("{} + {}", name, buffer.base + element);
  }

  bool Add(const std::vector<Stage>& stages) {
    for (const Stage& stage : stages) {
      if (const auto* repeat = std::get_if<Repeat>(&stage.work)) {
        const std::string name = fmt::format("r{}", repeats_.size());
        repeats_.push_back({repeat->times.variable, name});
        Add(repeat->body);
        repeats_.pop_back();
      } else {
        AddStage(stage);
      }
      if (functions_.definitions() > kMostFunctions && sharing_ != CppSharing::kAll) return false;
    }
    return true;
  }

  void AddStage(Stage stage) {
    std::map<int, int64_t> offsets;
    if (sharing_ == CppSharing::kAll)
      offsets = TakeCommonOffsets(program_, stage, [&](int buffer) {
        return program_.buffers.at(static_cast<size_t>(buffer)).is_output ? 16 : 1;  // CppStreams
      });
    CppStage text{program_, task_, setting_};
    text.sharing = sharing_;
    const std::vector<int> read = BuffersRead(stage);
    text.buffers = read;
    for (const int buffer : BuffersWritten(stage)) {
      if (std::find(text.buffers.begin(), text.buffers.end(), buffer) == text.buffers.end())
        text.buffers.push_back(buffer);
      text.written.insert(buffer);
    }
    for (const auto& [variable, name] : repeats_) text.outer[variable] = name;
    std::vector<std::string> arguments = {"worker"};
    for (const int buffer : text.buffers)
      arguments.push_back(Pointer(text, buffer, offsets.count(buffer) ? offsets.at(buffer) : 0));
    for (const auto& [variable, name] : repeats_) arguments.push_back(name);
    // A deep network repeats its stages: of equal ones one is written.
    const std::string key = StageKey(program_, stage, text.buffers);
    const auto known = key.empty() ? calls_.end() : calls_.find(key);
    if (known != calls_.end()) {
      numbers_.push_back(functions_.AddAgain(known->second, arguments));
      return;
    }
    CppWork(stage, text);
    KeepHelpers(text);
    numbers_.push_back(functions_.Add(CppFunctionName(stage.name), "static void", text.body,
                                      Parameters(text, read), arguments));
    if (!key.empty()) calls_[key] = numbers_.back();
  }

  std::vector<std::string> Parameters(const CppStage& text, const std::vector<int>& read) const {
    std::vector<std::string> parameters = {"Worker& worker"};
    for (const int buffer : text.buffers) {
      const bool is_written = text.written.count(buffer) > 0;
      const bool is_read = std::find(read.begin(), read.end(), buffer) != read.end();
      parameters.push_back(fmt::format("{}{}*{} {}", is_written ? "" : "const ", text.Element(buffer),
                                       is_written && is_read ? "" : " __restrict__", text.Name(buffer)));
    }
    for (const auto& [variable, name] : repeats_) parameters.push_back("long " + name);
    return parameters;
  }

  void KeepHelpers(const CppStage& text) {
    for (const std::string& helper : text.helpers) {
      if (std::find(helpers_.begin(), helpers_.end(), helper) == helpers_.end()) helpers_.push_back(helper);
    }
    for (const CppScratch& one : text.scratch) {
      CppScratch& most = scratch_[one.which];
      most.bytes = std::max(most.bytes, one.bytes);
      most.by_thread |= one.by_thread;
    }
  }

  void Calls(const std::vector<Stage>& stages, int depth, size_t& next, std::string& text) {
    const std::string indent(static_cast<size_t>(2 * depth), ' ');
    for (const Stage& stage : stages) {
      if (const auto* repeat = std::get_if<Repeat>(&stage.work)) {
        const std::string name = fmt::format("r{}", depth - 2);
        text +=
            fmt::format("{0}for (long {1} = 0; {1} < {2}; ++{1}) {{\n", indent, name, repeat->times.extent);
        Calls(repeat->body, depth + 1, next, text);
        text += indent + "}\n";
      } else {
        text += indent + functions_.Call(numbers_[next++]) + ";\n";
      }
    }
  }

  const Program& program_;
  const Task& task_;
  const Setting& setting_;
  CppSharing sharing_;
  FunctionTable functions_;
  std::vector<std::pair<int, std::string>> repeats_;
  std::vector<std::string> helpers_;
  std::map<int, CppScratch> scratch_;              // by `which`
  std::vector<size_t> numbers_;                    // of calls, by stage
  std::unordered_map<std::string, size_t> calls_;  // by StageKey
};

void CollectContractions(const std::vector<Stage>& stages, std::vector<const Contraction*>& found) {
  for (const Stage& stage : stages) {
    if (const auto* contraction = std::get_if<Contraction>(&stage.work)) found.push_back(contraction);
    if (const auto* repeat = std::get_if<Repeat>(&stage.work)) CollectContractions(repeat->body, found);
  }
}

// What the stages of a program have, those in the bodies of loops too.
struct CppKinds {
  bool walks = false, streams = false, columns = false;
  int heaviest_walk = -1, heaviest_contraction = -1;  // numbers of stages (LeafStages)
};

CppKinds KindsOf(const Program& program) {
  constexpr int64_t kLarge = 1 << 18;  // elements of an output that may go around the caches
  constexpr double kFlopsPerByte = 10;
  CppKinds kinds;
  const std::vector<const Stage*> stages = LeafStages(program);
  const auto work = [&](int i) {
    const Stage& stage = *stages[static_cast<size_t>(i)];
    return std::max(stage.flops / kFlopsPerByte, stage.bytes);
  };
  const auto keep_heavier = [&](int& heaviest, int i) {
    if (heaviest < 0 || work(i) > work(heaviest)) heaviest = i;
  };
  for (int i = 0; i < static_cast<int>(stages.size()); ++i) {
    const Stage& stage = *stages[static_cast<size_t>(i)];
    if (std::holds_alternative<Contraction>(stage.work)) keep_heavier(kinds.heaviest_contraction, i);
    const auto* reduction = std::get_if<Reduction>(&stage.work);
    if (!reduction && !std::holds_alternative<Pointwise>(stage.work)) continue;
    keep_heavier(kinds.heaviest_walk, i);
    kinds.walks = true;
    kinds.columns |= reduction != nullptr && !reduction->outer.empty();
    for (const int buffer : BuffersWritten(stage)) {
      const Buffer& one = program.buffers.at(static_cast<size_t>(buffer));
      kinds.streams |= one.is_output && !one.is_inout && one.dtype == "float32" && one.elements >= kLarge;
    }
  }
  return kinds;
}

// Of all kinds but contractions.
void CppCommonKnobs(const CppKinds& kinds, bool contracts, bool has_many_stages, std::vector<Knob>& knobs) {
  const int stage = kinds.heaviest_walk;
  if (kinds.streams)
    knobs.push_back({"STREAM", {1, 0}, true, "whether large outputs go around the caches", stage});
  if (kinds.walks) {
    Knob unroll{"UNROLL", {4, 2, 8, 1}, true, "vectors of a step along a row", stage};
    if (!has_many_stages) unroll.values.push_back(16);  // long to compile
    knobs.push_back(std::move(unroll));
  }
  if (kinds.columns)
    knobs.push_back(
        {"STRIP", {1024, 256, 4096, 512, 2048}, false, "columns that are reduced together", stage});
  if (kinds.walks && !contracts) knobs.push_back({"LANES", {16, 8}, false, "floats of a vector", stage});
}

}  // namespace

std::vector<Knob> CppKnobs(const Program& program, const Task& task) {
  std::vector<Knob> knobs;
  std::vector<const Contraction*> contractions;
  CollectContractions(program.stages, contractions);
  const CppKinds kinds = KindsOf(program);
  if (!contractions.empty()) {
    CppContractionKnobs(program, contractions, task, knobs);
    knobs.push_back(
        {"CHUNK", {1, 2, 4}, true, "blocks of a product that a thread takes, in units of the guess"});
    for (Knob& knob : knobs) knob.stage = kinds.heaviest_contraction;
  }
  CppCommonKnobs(kinds, !contractions.empty(), LeafStages(program).size() > kCppManyStages, knobs);
  return knobs;
}

std::string WriteCpp(const Program& program, const Task& task, const Setting& setting) {
  // Literals are faster; where the stages differ too much, they share more.
  const size_t stages = LeafStages(program).size();
  for (const CppSharing sharing : {CppSharing::kNone, CppSharing::kLarge, CppSharing::kAll}) {
    if (stages > kCppManyStages && sharing == CppSharing::kNone) continue;
    if (stages > kCppMostStages && sharing == CppSharing::kLarge) continue;
    CppProgram text(program, task, setting, sharing);
    if (text.AddStages() || sharing == CppSharing::kAll) return text.Write();
  }
  return "";
}

}  // namespace kevin::search
