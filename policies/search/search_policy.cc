#include "policies/search/search_policy.h"

#include <fmt/format.h>

#include <algorithm>

#include "env/error.h"
#include "policies/search/choose.h"
#include "policies/search/join_shapes.h"
#include "policies/search/lower.h"
#include "policies/search/write.h"

namespace kevin {
namespace {

using search::Choice;
using search::Knob;
using search::Program;
using search::Setting;
using search::Stage;
using search::Tried;
using search::Unsupported;

constexpr size_t kDeclaredKnobs = 8;  // env/knobs/knobs.h: the most that a text may declare

// The task at one of its shapes.
struct ShapeTask {
  Task task;
  Program program;
};

std::vector<ShapeTask> ShapesOfTask(const Task& task) {
  if (task.kind != "cpp" && task.kind != "cuda")
    throw Unsupported("it writes candidates of kind cpp and cuda, not " + task.kind);
  if (task.shape_graphs.empty()) throw Unsupported("there is no graph of the reference");
  std::vector<ShapeTask> shapes;
  for (const TaskShape& shape : task.shape_graphs) {
    if (shape.graph.empty()) throw Unsupported(shape.no_graph);
    ShapeTask one{task, {}};
    one.task.symbols = shape.symbols;
    one.program = search::Lower(search::ParseGraph(shape.graph), one.task);
    search::Fuse(one.program);
    search::PlaceWorkspaces(one.program);
    shapes.push_back(std::move(one));
  }
  return shapes;
}

std::vector<Knob> KnobsOf(const ShapeTask& shape) {
  return shape.task.kind == "cuda" ? CudaKnobs(shape.program, shape.task)
                                   : CppKnobs(shape.program, shape.task);
}

std::string TextAt(const ShapeTask& shape, const Setting& setting) {
  return shape.task.kind == "cuda" ? WriteCuda(shape.program, shape.task, setting)
                                   : WriteCpp(shape.program, shape.task, setting);
}

// The share of the time that each stage takes, by the usual counts.
std::vector<double> SharesOf(const Program& program, const std::string& kind) {
  // Roughly what a machine does: only the ratio of both counts here.
  const double flops_per_s = kind == "cuda" ? 4e13 : 1e11, bytes_per_s = kind == "cuda" ? 4e12 : 1e10;
  const double least_s = kind == "cuda" ? 2e-6 : 5e-6;
  std::vector<double> seconds;
  double total = 0;
  for (const Stage& stage : program.stages) {
    seconds.push_back(std::max({stage.flops / flops_per_s, stage.bytes / bytes_per_s, least_s}));
    total += seconds.back();
  }
  for (double& one : seconds) one /= total;
  return seconds;
}

std::string DescriptionOf(const Program& program, const std::vector<double>& shares) {
  constexpr size_t kNamed = 3;
  std::vector<size_t> order(program.stages.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return shares[a] > shares[b]; });
  std::string text = program.stages.size() == 1
                         ? "The reference is one stage: "
                         : fmt::format("The reference is {} stages; by their counts of work: ", order.size());
  for (size_t i = 0; i < std::min(order.size(), kNamed); ++i)
    text += fmt::format("{}{} ({:.0f} %)", i == 0 ? "" : ", ", program.stages[order[i]].name,
                        100 * shares[order[i]]);
  return text + (order.size() > kNamed ? ", and others." : ".");
}

struct Reply {
  std::string text;  // of the kernel
  Choice choice;
  std::string description;
};

Reply ReplyTo(const Task& task, uint64_t seed) {
  const std::vector<ShapeTask> shapes = ShapesOfTask(task);
  // Shapes share the knobs that they have in common by name; a value that one of them lacks is not used.
  std::vector<Knob> knobs;
  std::vector<std::vector<Knob>> own;
  for (const ShapeTask& shape : shapes) {
    own.push_back(KnobsOf(shape));
    for (const Knob& knob : own.back()) {
      const auto known =
          std::find_if(knobs.begin(), knobs.end(), [&](const Knob& k) { return k.name == knob.name; });
      if (known == knobs.end()) {
        knobs.push_back(knob);
        continue;
      }
      std::erase_if(known->values, [&](int64_t value) {
        return std::find(knob.values.begin(), knob.values.end(), value) == knob.values.end();
      });
      if (known->values.empty()) known->values = {knob.values.at(0)};
    }
  }
  const std::vector<double> shares = SharesOf(shapes[0].program, task.kind);
  const std::vector<Tried> tried = search::ReadAttempts(knobs, task.attempts);
  const bool tunes = task.tune > 1;
  Reply reply;
  reply.choice = search::ChooseNext(knobs, tried, shares, tunes, seed);
  reply.description = DescriptionOf(shapes[0].program, shares);
  std::vector<std::string> texts;
  for (size_t i = 0; i < shapes.size(); ++i) {
    Setting setting;
    for (const Knob& knob : own[i]) {
      const int64_t value = reply.choice.setting.at(knob.name);
      const bool fits = std::find(knob.values.begin(), knob.values.end(), value) != knob.values.end();
      setting[knob.name] = fits ? value : knob.values.at(0);
    }
    texts.push_back(TextAt(shapes[i], setting));
  }
  reply.text = search::KnobLines(knobs, reply.choice.setting, tunes ? kDeclaredKnobs : 0) +
               (texts.size() == 1 ? texts[0] : search::JoinShapes(task, texts));
  return reply;
}

class SearchPolicy : public Policy {
 public:
  Completion Complete(const Request& request, const CancelToken* cancel, const OnText& on_text) override {
    Completion completion;
    completion.model = "search-2";
    if (cancel != nullptr && cancel->load()) {
      completion.stop_reason = "cancelled";
      return completion;
    }
    try {
      const Reply reply = ReplyTo(request.task, request.sampling.seed);
      completion.text = reply.description + " " + reply.choice.reason;
      if (!request.task.start_source.empty())
        completion.text +=
            " The kernel that the episode started from is not edited; this is a text of the search's own.";
      completion.text +=
          "\n\n```" + request.task.kind + "\n" + reply.text + "```\n\n" + reply.choice.changed + "\n";
    } catch (const Unsupported& unsupported) {
      const std::string text = WhyNotText(unsupported.what());
      const size_t end = text.find('\n');
      throw Error(ExitCode::kBadRequest, text.substr(0, end), text.substr(end + 1));
    }
    completion.stop_reason = "stop";
    if (on_text) on_text(completion.text);
    return completion;
  }

  std::string Name() const override { return "search"; }
  bool LoadsProcessor() const override { return true; }
  bool ReadsGraphs() const override { return true; }

  std::string WhyNot(const Task& task) const override {
    try {
      for (const ShapeTask& shape : ShapesOfTask(task)) {
        Setting setting;
        for (const Knob& knob : KnobsOf(shape)) setting[knob.name] = knob.values.at(0);
        TextAt(shape, setting);
      }
      return "";
    } catch (const Unsupported& unsupported) {
      return WhyNotText(unsupported.what());
    }
  }

 private:
  static std::string WhyNotText(const std::string& reason) {
    return fmt::format(
        "the search policy cannot write this problem: {}\n"
        "write that part with other operations, or use a language model (--policy openai:MODEL, anthropic:MODEL or local:DIR) "
        "or a stored episode (replay:EPISODE)",
        reason);
  }
};

}  // namespace

std::unique_ptr<Policy> MakeSearchPolicy() { return std::make_unique<SearchPolicy>(); }

}  // namespace kevin
