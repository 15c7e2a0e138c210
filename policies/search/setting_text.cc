#include "policies/search/setting_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <sstream>

namespace kevin::search {
namespace {

constexpr const char* kMark = "// search:";
constexpr const char* kConstant = "constexpr int ";
constexpr size_t kWordsPerLine = 8;

bool IsValid(const Knob& knob, int64_t value) {
  return std::find(knob.values.begin(), knob.values.end(), value) != knob.values.end();
}

// The constant that stands in the text for a knob; nullopt where there is none.
std::optional<int64_t> ConstantIn(const std::string& source, const std::string& name) {
  const std::string start = fmt::format("constexpr int {} = ", name);
  const size_t at = source.find(start);
  if (at == std::string::npos) return std::nullopt;
  return std::strtoll(source.c_str() + at + start.size(), nullptr, 10);
}

std::optional<Setting> ReadSetting(const std::vector<Knob>& knobs, const std::string& source) {
  std::map<std::string, int64_t> read;
  bool found = false;
  std::istringstream lines(source);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(kMark, 0) != 0) continue;
    found = true;
    std::istringstream words(line.substr(std::string(kMark).size()));
    for (std::string word; words >> word;) {
      const size_t equals = word.find('=');
      if (equals != std::string::npos)
        read[word.substr(0, equals)] = std::strtoll(word.c_str() + equals + 1, nullptr, 10);
    }
  }
  if (!found) return std::nullopt;
  Setting setting;
  for (const Knob& knob : knobs) {
    std::optional<int64_t> value = knob.in_text ? ConstantIn(source, knob.name) : std::nullopt;
    if (!value && read.count(knob.name)) value = read[knob.name];
    if (!value || !IsValid(knob, *value)) return std::nullopt;
    setting[knob.name] = *value;
  }
  return setting;
}

bool IsPartOfName(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

bool Mentions(const std::string& text, const std::string& name) {
  for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
    const size_t end = at + name.size();
    if ((at == 0 || !IsPartOfName(text[at - 1])) && (end == text.size() || !IsPartOfName(text[end])))
      return true;
  }
  return false;
}

}  // namespace

std::vector<Tried> ReadAttempts(const std::vector<Knob>& knobs, const std::vector<TaskAttempt>& attempts) {
  std::vector<Tried> tried;
  for (const TaskAttempt& attempt : attempts) {
    const std::optional<Setting> setting = ReadSetting(knobs, attempt.source);
    if (!setting) continue;
    const bool measured = attempt.outcome == "measured" && attempt.speedup.has_value();
    tried.push_back({*setting, measured ? attempt.speedup : std::nullopt, true});
    double chosen_us = 0;
    for (const KnobTrial& trial : attempt.trials) {
      if (trial.chosen && trial.candidate_us) chosen_us = *trial.candidate_us;
    }
    for (const KnobTrial& trial : attempt.trials) {
      Setting one = *setting;
      bool fits = !trial.chosen;
      for (const auto& [name, value] : trial.setting) {
        const auto knob =
            std::find_if(knobs.begin(), knobs.end(), [&](const Knob& k) { return k.name == name; });
        fits = fits && knob != knobs.end() && IsValid(*knob, value);
        if (fits) one[name] = value;
      }
      if (!fits) continue;
      std::optional<double> speedup;
      if (trial.candidate_us && chosen_us > 0 && measured)
        speedup = *attempt.speedup * chosen_us / *trial.candidate_us;
      tried.push_back({one, speedup, false});
    }
  }
  return tried;
}

std::string KnobLines(const std::vector<Knob>& knobs, const Setting& setting, size_t declared,
                      const std::string& body) {
  std::string text, constants;
  size_t words = 0, lines = 0;
  for (const Knob& knob : knobs) {
    const int64_t value = setting.at(knob.name);
    if (words++ % kWordsPerLine == 0) text += (text.empty() ? "" : "\n") + std::string(kMark);
    text += fmt::format(" {}={}", knob.name, value);
    if (!knob.in_text || !Mentions(body, knob.name)) continue;
    if (lines >= declared || knob.values.size() < 2) {
      constants += fmt::format("{}{} = {};  // {}\n", kConstant, knob.name, value, knob.what);
      continue;
    }
    ++lines;
    constants += fmt::format("// knob {}: {}", knob.name, value);
    for (const int64_t other : knob.values) {
      if (other != value) constants += fmt::format(" {}", other);
    }
    constants += "\n";
  }
  if (text.empty()) text = std::string(kMark) + " no knobs";
  return text + "\n" + constants;
}

std::string TextWithoutRecord(const std::string& source) {
  constexpr const char* kDeclaration = "// knob ";
  std::string text;
  std::istringstream lines(source);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(kMark, 0) == 0) continue;
    const size_t colon = line.find(": ");
    if (line.rfind(kDeclaration, 0) == 0 && colon != std::string::npos) {
      const size_t name = std::string(kDeclaration).size();
      const std::string values = line.substr(colon + 2);
      line = fmt::format("{}{} = {};", kConstant, line.substr(name, colon - name),
                         values.substr(0, values.find(' ')));
    }
    // The comment behind a constant is lost where the environment writes it.
    const size_t end = line.rfind(kConstant, 0) == 0 ? line.find(';') : std::string::npos;
    text += line.substr(0, end) + "\n";
  }
  return text;
}

}  // namespace kevin::search
