#include "tools/kernelbench_compat.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>

#include "agent/parse.h"
#include "agent/text.h"
#include "env/error.h"
#include "env/printable.h"
#include "env/problem/text.h"
#include "env/process/files.h"
#include "env/verdict/words.h"

namespace kevin {
namespace {

using Json = nlohmann::ordered_json;

std::string TextIn(const Json& event, const char* key) {
  const auto found = event.find(key);
  return found != event.end() && found->is_string() ? found->get<std::string>() : "";
}

double NumberIn(const Json& event, const char* key) {
  const auto found = event.find(key);
  return found != event.end() && found->is_number() ? found->get<double>() : 0;
}

bool IsMeasured(const Json& event) { return TextIn(event, "outcome") == "measured"; }

std::string KevinText(const Json& event) {
  if (!IsMeasured(event)) return TextIn(event, "outcome");
  return "correct " + RatioText(NumberIn(event, "speedup"), NumberIn(event, "speedup_low"),
                                NumberIn(event, "speedup_high"));
}

std::string KernelBenchText(const KernelBenchVerdict& verdict) {
  if (!verdict.compiled) return "does not compile";
  if (!verdict.correct) return "incorrect";
  return fmt::format("correct {:.3g}x{}", verdict.speedup,
                     verdict.excessive_speedup ? ", flagged (above 10x)" : "");
}

// Kevin rejects it, KernelBench does not.
std::string WhyOnlyKernelBench(const Json& event, const KernelBenchVerdict& verdict) {
  const std::string outcome = TextIn(event, "outcome"), said = FirstSentence(TextIn(event, "reason"), 200);
  if (outcome == "refused") return "KernelBench's method has no such rule: " + said;
  if (outcome == "wrong") {
    return fmt::format(
        "KernelBench compares with one tolerance of {:g}, on U[0,1) inputs of five known seeds (largest difference {:.3g}); "
        "Kevin says: {}",
        verdict.tolerance, verdict.max_difference, said);
  }
  if (outcome == "timed_out") return "Kevin's limits are shorter: " + said;
  return "only in Kevin's sandbox: " + said;
}

// KernelBench rejects it, Kevin does not.
std::string WhyOnlyKevin(const KernelBenchVerdict& verdict) {
  if (!verdict.compiled) return "only under KernelBench's method: " + verdict.reason;
  if (verdict.trials_passed < verdict.trials && verdict.max_difference > 0) {
    return fmt::format(
        "{}; Kevin compares each element with the truth in fp64, and allows what the reference's own error allows",
        verdict.reason);
  }
  return verdict.reason;
}

std::string OtherShapesText(const Json& event, const KernelBenchVerdict& verdict) {
  return fmt::format("KernelBench's file has {} that Kevin took at size {}", verdict.other_shapes,
                     TextIn(event, "size"));
}

std::string WhyOtherSpeed(const Json& event, const KernelBenchVerdict& verdict) {
  const bool is_faster = NumberIn(event, "speedup_low") > 1;
  const bool within =
      verdict.speedup >= NumberIn(event, "speedup_low") && verdict.speedup <= NumberIn(event, "speedup_high");
  if (within || is_faster == (verdict.speedup > 1)) return "";
  if (!verdict.other_shapes.empty()) return "times of other shapes: " + OtherShapesText(event, verdict);
  return fmt::format(
      "KernelBench's ratio of two means ({} calls of one side after the other, the same inputs each time) has no interval; "
      "Kevin's calls alternate, with inputs that the candidate has not seen",
      verdict.timed_calls);
}

}  // namespace

CompatRow Compare(const Json& event, const KernelBenchVerdict& verdict) {
  CompatRow row{TextIn(event, "name"), TextIn(event, "problem"), KevinText(event), KernelBenchText(verdict),
                ""};
  if (IsMeasured(event) != verdict.correct) {
    row.reason = verdict.correct ? WhyOnlyKernelBench(event, verdict) : WhyOnlyKevin(verdict);
    if (!verdict.other_shapes.empty()) row.reason += "; " + OtherShapesText(event, verdict);
  } else if (verdict.correct && verdict.speedup > 0) {
    row.reason = WhyOtherSpeed(event, verdict);
  }
  row.reason = Printable(row.reason);
  return row;
}

std::string CompatKey(const std::string& evaluation_key, const std::string& own_file) {
  return evaluation_key + (own_file.empty() ? ", Kevin's form" : ", own file " + Sha256Hex(own_file));
}

CompatResults::CompatResults(const std::filesystem::path& folder) : path_(folder / "kevin_compat.jsonl") {
  std::ifstream file(path_, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const size_t complete = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;
  size_t number = 0;
  for (const std::string_view line : SplitLines(std::string_view(text).substr(0, complete))) {
    ++number;
    if (Trim(line).empty()) continue;
    const Json row = Json::parse(line, nullptr, false);
    if (!row.is_object() || !row.contains("verdict") || !row["verdict"].is_object())
      throw Error(ExitCode::kBadRequest, fmt::format("{}:{}: no stored verdict", path_.string(), number),
                  "remove this line, or name another folder with --results");
    known_[{TextIn(row, "name"), TextIn(row, "key")}] = KernelBenchVerdictFromJson(row["verdict"]);
  }
  std::error_code ignored;
  if (complete < text.size()) std::filesystem::resize_file(path_, complete, ignored);
}

const KernelBenchVerdict* CompatResults::Find(const std::string& name, const std::string& key) const {
  const auto found = known_.find({name, key});
  return found == known_.end() ? nullptr : &found->second;
}

void CompatResults::Add(const std::string& name, const std::string& key, const KernelBenchVerdict& verdict,
                        const CompatRow& row) {
  const Json line = {{"name", name},
                     {"key", key},
                     {"verdict", ToJson(verdict)},
                     {"disagreement", row.reason.empty() ? Json(nullptr) : Json(row.reason)}};
  std::ofstream file(path_, std::ios::binary | std::ios::app);
  file << line.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
  if (!file.flush()) throw Error(ExitCode::kBroken, "cannot write " + path_.string(), "free some disk space");
  known_[{name, key}] = verdict;
}

std::string CompatText(const std::vector<CompatRow>& rows, const std::vector<KernelBenchVerdict>& verdicts) {
  std::string text;
  size_t disagreements = 0;
  for (const CompatRow& row : rows) {
    if (row.reason.empty()) continue;
    ++disagreements;
    text += fmt::format("{}  {}\n  Kevin: {}\n  KernelBench: {}\n  because: {}\n", row.problem, row.name,
                        row.kevin, row.kernelbench, row.reason);
  }
  std::set<std::string> differs;
  for (const KernelBenchVerdict& verdict : verdicts)
    differs.insert(verdict.differs.begin(), verdict.differs.end());
  std::string head = fmt::format("\nKernelBench's method beside Kevin's: {} compared, {} disagree\n",
                                 Counted(static_cast<int64_t>(rows.size()), "candidate"), disagreements);
  for (const std::string& each : differs) head += "  differs from KernelBench on a GPU: " + each + "\n";
  return Printable(head + text);
}

std::string OwnProblemFile(const std::filesystem::path& checkout, int level, int number) {
  const std::string prefix = fmt::format("{}_", number);
  for (const std::filesystem::path& folder :
       {checkout / "KernelBench" / fmt::format("level{}", level), checkout / fmt::format("level{}", level)}) {
    std::error_code error;
    for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
         it.increment(error)) {
      const std::string name = it->path().filename().string();
      if (!name.starts_with(prefix) || !name.ends_with(".py") || !it->is_regular_file(error)) continue;
      std::ifstream file(it->path(), std::ios::binary);
      return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    }
  }
  return "";
}

}  // namespace kevin
