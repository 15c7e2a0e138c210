#include "policies/search/search_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "env/error.h"
#include "policies/search/choose.h"
#include "policies/search/graph.h"
#include "policies/search/join_shapes.h"
#include "policies/search/task_program.h"

namespace kevin {
namespace {

using search::Choice;
using search::Knob;
using search::Setting;
using search::Stage;
using search::TaskProgram;
using search::Tried;
using search::Unsupported;

constexpr size_t kDeclaredKnobs = 8;  // env/knobs/knobs.h: the most that a text may declare
// Settings whose text is one that was there already; writing takes 50 ms at most.
constexpr int kMostRepetitions = 128;

std::string DescriptionOf(const std::vector<std::string>& stages, const std::vector<double>& shares,
                          bool has_results) {
  constexpr size_t kNamed = 3;
  std::vector<size_t> order(stages.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return shares[a] > shares[b]; });
  std::string text =
      stages.size() == 1
          ? "The reference is one stage: "
          : fmt::format("The reference is {} stages; by their counts of work{}: ", order.size(),
                        has_results ? " and the results so far" : "");
  for (size_t i = 0; i < std::min(order.size(), kNamed); ++i)
    text += fmt::format("{}{} ({:.0f} %)", i == 0 ? "" : ", ", stages[order[i]], 100 * shares[order[i]]);
  return text + (order.size() > kNamed ? ", and others." : ".");
}

// Shapes share the knobs that they have in common by name; a value that one of them lacks is not used.
std::vector<Knob> CommonKnobs(const std::vector<std::vector<Knob>>& by_shape) {
  std::vector<Knob> knobs;
  for (const std::vector<Knob>& own : by_shape) {
    for (const Knob& knob : own) {
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
  return knobs;
}

struct Reply {
  std::string text;  // of the kernel
  Choice choice;
  std::string description;
};

// One turn: the next setting whose text no earlier turn had. Throws NothingLeft where none is found.
class ReplyWriter {
 public:
  ReplyWriter(const Task& task, uint64_t seed) : task_(task), seed_(seed), shapes_(search::ProgramsOf(task)) {
    for (const TaskProgram& shape : shapes_) own_.push_back(search::KnobsOf(shape));
    knobs_ = CommonKnobs(own_);
    guidance_.shares = search::SharesByCounts(shapes_[0]);
    for (const Stage* stage : search::LeafStages(shapes_[0].program)) guidance_.stages.push_back(stage->name);
    guidance_.experience = search::ExperienceOf(shapes_[0].program, knobs_, task.related);
    guidance_.searches_in_text = task.tune > 1;
    for (const TaskAttempt& attempt : task.attempts)
      earlier_.emplace(search::TextWithoutRecord(attempt.source), attempt.speedup);
  }

  Reply Write() {
    bool is_widened = false, is_first = false;
    size_t others = 0;
    for (const TaskProgram& shape : shapes_) {
      is_widened |= shape.is_widened_late;
      is_first |= shape.is_widened_first;
      others = std::max(others, shape.attempts_of_others);
    }
    std::vector<Tried> tried = search::ReadAttempts(
        knobs_, {task_.attempts.begin() + static_cast<std::ptrdiff_t>(others), task_.attempts.end()});
    Reply reply;
    const std::vector<double> shares = search::SharesByResults(knobs_, tried, guidance_.shares);
    reply.description = DescriptionOf(guidance_.stages, shares, shares != guidance_.shares);
    if (is_widened)
      reply.description +=
          " A result was incorrect: what was kept in 16 bits between stages is kept in fp32 since then.";
    if (is_first) {
      reply.description += " Between stages everything is kept in fp32, so that roundings do not add up";
      reply.description += task_.attempts.empty() ? "; the next text tries 16 bits."
                                                  : ": a result was incorrect even so, for another reason.";
    }
    reply.choice = search::ChooseNext(knobs_, tried, guidance_, seed_);
    for (int i = 0; i <= kMostRepetitions && reply.choice.is_new; ++i) {
      const std::string body = BodyWith(reply.choice.setting);
      if (earlier_.empty()) return WithLines(std::move(reply), body);
      const auto same = earlier_.find(search::TextWithoutRecord(LinesAndBody(reply.choice.setting, 0, body)));
      if (same == earlier_.end()) return WithLines(std::move(reply), body);
      // The setting makes no difference to an earlier text, so its result is known.
      tried.push_back({reply.choice.setting, same->second, true});
      reply.choice = search::ChooseNext(knobs_, tried, guidance_, seed_);
    }
    throw NothingLeft(ExitCode::kDone, "every kernel that the search policy has for this problem was tried");
  }

 private:
  Reply WithLines(Reply reply, const std::string& body) const {
    reply.text = LinesAndBody(reply.choice.setting, guidance_.searches_in_text ? kDeclaredKnobs : 0, body);
    return reply;
  }

  std::string LinesAndBody(const Setting& setting, size_t declared, const std::string& body) const {
    return search::KnobLines(knobs_, setting, declared, body) + body;
  }

  std::string BodyWith(const Setting& setting) const {
    std::vector<std::string> texts;
    for (size_t i = 0; i < shapes_.size(); ++i) {
      Setting own;
      for (const Knob& knob : own_[i]) {
        const int64_t value = setting.at(knob.name);
        const bool fits = std::find(knob.values.begin(), knob.values.end(), value) != knob.values.end();
        own[knob.name] = fits ? value : knob.values.at(0);
      }
      texts.push_back(search::TextOf(shapes_[i], own));
    }
    return texts.size() == 1 ? texts[0] : search::JoinShapes(task_, texts);
  }

  const Task& task_;
  uint64_t seed_;
  std::vector<TaskProgram> shapes_;
  std::vector<std::vector<Knob>> own_;  // by shape
  std::vector<Knob> knobs_;
  search::Guidance guidance_;
  std::map<std::string, std::optional<double>> earlier_;  // text without its record -> speed-up
};

class SearchPolicy : public Policy {
 public:
  Completion Complete(const Request& request, const CancelToken* cancel, const OnText& on_text) override {
    Completion completion;
    completion.model = "search-3";
    if (cancel != nullptr && cancel->load()) {
      completion.stop_reason = "cancelled";
      return completion;
    }
    try {
      const Reply reply = ReplyWriter(request.task, request.sampling.seed).Write();
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
  std::string ComputesOn() const override { return "cpu"; }
  bool ReadsGraphs() const override { return true; }

  std::string WhyNot(const Task& task) const override {
    if (task.kind == "modelnew" || task.kind == "triton" || task.kind == "ptx")
      return "the search policy writes kernels of kind cpp and cuda, not " + task.kind +
             "\nask a language model: --policy, kevin run --help lists them";
    try {
      for (const TaskProgram& shape : search::ProgramsOf(task)) {
        Setting setting;
        for (const Knob& knob : search::KnobsOf(shape)) setting[knob.name] = knob.values.at(0);
        search::TextOf(shape, setting);
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
