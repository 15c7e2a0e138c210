#include "tools/report/ladders.h"

#include <fmt/format.h>

#include "agent/feedback.h"
#include "agent/gpu_feedback.h"
#include "agent/journal.h"
#include "tools/report/charts.h"
#include "tools/report/diff.h"
#include "tools/report/format.h"
#include "tools/report/html.h"

namespace kevin {
namespace {

std::string Pre(const std::string& text) { return "<pre>" + Escaped(text) + "</pre>"; }

std::string DiffHtml(const std::vector<DiffLine>& lines) {
  std::string html = "<pre>";
  for (const DiffLine& line : lines) {
    const std::string text = Escaped(line.text);
    switch (line.kind) {
      case DiffLine::Kind::kSame:
        html += "  " + text + "\n";
        break;
      case DiffLine::Kind::kAdded:
        html += "<span class=\"a\">+ " + text + "</span>";
        break;
      case DiffLine::Kind::kRemoved:
        html += "<span class=\"d\">- " + text + "</span>";
        break;
      case DiffLine::Kind::kGap:
        html += "<span class=\"h\">" + text + "</span>";
        break;
    }
  }
  return html + "</pre>";
}

std::string RatioOf(const std::optional<Ratio>& ratio) {
  return ratio ? RatioText(ratio->value, ratio->low, ratio->high) : "";
}

std::string TurnName(int turn) { return turn == 0 ? "start" : fmt::format("turn {}", turn); }

// The bytes of what a turn shows, by how soon it is left out.
std::string Prompt(const TurnRecord& turn) {
  std::string text;
  for (const MessageRecord& m : turn.messages) text += "[" + m.role + "]\n" + m.content + "\n\n";
  return text;
}

class TurnPart {
 public:
  TurnPart(const std::string& episode, const TurnRecord& turn, TextBudget* budget)
      : episode_(episode), turn_(turn), budget_(budget) {}

  // `text` decides whether it fits; `html` is what is written then.
  void Add(const std::string& summary, const std::string& text, const std::string& html,
           bool is_open = false) {
    if (text.empty()) return;
    if (budget_->Take(html.size())) {
      html_ +=
          is_open ? "<p class=\"quiet small\">" + summary + "</p>" + html : Details(summary, html, "plain");
    } else {
      left_out_ += (left_out_.empty() ? "" : ", ") + summary;
    }
  }
  std::string Finish() const {
    if (left_out_.empty()) return html_;
    return html_ +
           fmt::format("<p class=\"quiet small\">Left out for size: {}. <code>kevin show {} {}</code></p>",
                       left_out_, episode_, turn_.turn);
  }

 private:
  const std::string& episode_;
  const TurnRecord& turn_;
  TextBudget* budget_;
  std::string html_, left_out_;
};

std::string LadderFacts(const TurnRecord& turn) {
  const EvaluationRecord& e = turn.evaluation;
  std::string rows;
  const auto add = [&](const std::string& name, const std::string& value) {
    if (!value.empty()) rows += "<tr><th>" + name + "</th><td>" + Escaped(value) + "</td></tr>";
  };
  add("reason", e.reason);
  add("speed-up, 99 %", RatioOf(e.speedup));
  add("against the start", RatioOf(e.against_start));
  if (e.candidate_us) {
    const std::string floor = e.floor_us ? fmt::format("; floor {:.4g} us", *e.floor_us) : "";
    add("a call",
        fmt::format("{:.4g} us; eager {:.4g} us{}", *e.candidate_us, e.reference_us.value_or(0), floor));
  }
  if (e.gb_per_s)
    add("rates", fmt::format("{:.4g} GB/s, {:.4g} GFLOP/s", *e.gb_per_s, e.gflop_per_s.value_or(0)));
  for (const KernelReport& kernel : KernelsFromText(e.kernels)) add("kernel", KernelLine(kernel));
  if (e.max_error)
    add("error", fmt::format("{:.3g} of {:.3g} allowed", *e.max_error, e.error_bound.value_or(0)));
  add("score", fmt::format("{:.4g}", e.score));
  add("seconds",
      fmt::format("generate {:.2f}, compile {:.2f}, verify {:.2f}, measure {:.2f}, overhead {:.2f}",
                  turn.generate_s, e.compile_s, e.verify_s, e.measure_s, turn.overhead_s));
  if (turn.usage.completion_tokens)
    add("tokens",
        fmt::format("{} in, {} out", turn.usage.prompt_tokens.value_or(0), *turn.usage.completion_tokens));
  add("repeats", e.cached_from);
  return "<table><tbody>" + rows + "</tbody></table>";
}

std::string TurnSection(Store& store, const std::string& episode, const TurnRecord& turn,
                        const std::string& before, TextBudget* budget) {
  const EvaluationRecord& e = turn.evaluation;
  const std::string speed = e.speedup ? fmt::format(" <b>{:.3g}x</b>", e.speedup->value) : "";
  const std::string badge =
      fmt::format("<span class=\"badge {}\">{}{}</span>", e.correct ? "measured" : "failed",
                  Escaped(e.outcome), e.cached_from.empty() ? "" : ", cached");
  const std::string summary =
      fmt::format("{} {}{} <span class=\"quiet small\">{}</span>", TurnName(turn.turn), badge, speed,
                  Escaped(turn.summary.substr(0, 160)));
  const std::string facts = LadderFacts(turn);
  if (!budget->Take(facts.size() + summary.size())) return "<p class=\"small\">" + summary + "</p>";
  TurnPart part(episode, turn, budget);
  if (!before.empty() && !e.source.empty()) {
    const auto diff = DiffLines(before, e.source);
    const std::string html =
        diff.empty() ? "<p class=\"small\">The same kernel as before.</p>" : DiffHtml(diff);
    part.Add("against the kernel before", e.source, html, true);
  }
  part.Add("kernel", e.source, Pre(e.source), before.empty());
  const auto full = store.LoadTurn(episode, turn.turn);
  if (full)
    part.Add("timing samples", full->evaluation.samples.empty() ? "" : "samples",
             SampleStrip(full->evaluation.samples));
  part.Add("what the policy was told about it", turn.feedback, Pre(turn.feedback));
  part.Add("log", e.log, Pre(e.log));
  part.Add("reply", turn.reply, Pre(turn.reply));
  part.Add("reasoning", turn.reasoning, Pre(turn.reasoning));
  const std::string prompt = Prompt(turn);
  part.Add("prompt", prompt, Pre(prompt));
  return Details(summary, facts + part.Finish());
}

std::string EpisodeHeading(const EpisodeRecord& e, size_t color) {
  std::string best = "no right kernel";
  if (e.best_turn) best = fmt::format("best is turn {}", *e.best_turn);
  if (e.best_speedup)
    best += fmt::format(
        " with <b>{}</b>, measured again",
        RatioText(*e.best_speedup, e.best_speedup_low.value_or(0), e.best_speedup_high.value_or(0)));
  return fmt::format(
      "<h3><i class=\"square\" style=\"background:{}\"></i> "
      "Episode {}</h3><p class=\"small\">{}, {}; {} of {} turns right; {}. <span "
      "class=\"quiet\">{}{}</span></p>",
      ColorOf(color), e.id, Escaped(e.policy), best, e.correct_turns, e.turns, SpanText(e.seconds),
      EpisodeStateName(e.state), Escaped(e.state_reason.empty() ? "" : ": " + e.state_reason));
}

}  // namespace

bool TextBudget::Take(size_t size) {
  const auto wanted = static_cast<int64_t>(size);
  if (wanted <= bytes) {
    bytes -= wanted;
    return true;
  }
  texts_left_out++, bytes_left_out += wanted;
  return false;
}

std::string EpisodeSection(Store& store, const std::string& id, size_t color, TextBudget* budget) {
  const EpisodeRecord episode = store.FindEpisode(id);
  const std::vector<TurnRecord> turns = CurrentTurns(store, id);
  std::vector<LadderStep> steps;
  for (const TurnRecord& t : turns) {
    const auto& speedup = t.evaluation.speedup;
    LadderStep step;
    step.turn = t.turn, step.is_measured = t.evaluation.correct && speedup.has_value();
    if (step.is_measured) step.value = speedup->value, step.low = speedup->low, step.high = speedup->high;
    step.title = TurnName(t.turn) + ": " + (speedup ? RatioOf(speedup) : t.evaluation.outcome);
    steps.push_back(std::move(step));
  }
  std::string html = EpisodeHeading(episode, color) + Ladder(steps, color);
  std::string before = episode.start_source;
  for (const TurnRecord& turn : turns) {
    html += TurnSection(store, id, turn, turn.turn == 0 ? "" : before, budget);
    if (!turn.evaluation.source.empty()) before = turn.evaluation.source;
  }
  return html;
}

}  // namespace kevin
