#include "env/outcome.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

namespace kevin {
namespace {

using Json = nlohmann::ordered_json;

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

std::string OneLine(std::string_view text) {
  const size_t start = text.find_first_not_of(" \t\r\n");
  if (start == std::string_view::npos) return "";
  text = text.substr(start);
  text = text.substr(0, text.find_first_of("\r\n"));
  return std::string(text.substr(0, text.find_last_not_of(" \t") + 1));
}

// Of a diagnostic behind the candidate's text: its line is none of the candidate. Of clang it may be "functions that differ only
// in their return type cannot be overloaded".
std::string SignatureError(std::string_view message) {
  const bool is_signature = message.find("launch") != std::string_view::npos ||
                            message.find("overloaded") != std::string_view::npos;
  return is_signature ? "the signature of `launch` is not the required one" : "its text is not complete";
}

// The first error of a compiler's or linker's log, without the file's name; its first line when none is
// found.
std::string FirstCompileError(std::string_view log) {
  for (const std::string_view mark : {"error: ", "undefined reference"}) {
    const size_t at = log.find(mark);
    if (at == std::string_view::npos) continue;
    const size_t line_start = log.rfind('\n', at) + 1;  // npos + 1 is 0
    const size_t colon = log.find(':', line_start);
    const std::string_view name = log.substr(line_start, colon - line_start);
    if (name == kSignatureFile) return SignatureError(OneLine(log.substr(at)));
    const bool is_line_number =
        name.find_first_not_of("0123456789") == std::string_view::npos;  // a reason, not a log
    return OneLine(log.substr(colon < at && !is_line_number ? colon + 1 : line_start));
  }
  return OneLine(log);
}

// A rate or a floor of 0 means that the problem states no cost, a peak of 0 that none was measured.
std::optional<double> Known(double value) { return value > 0 ? std::optional(value) : std::nullopt; }

Verdict VerdictNamed(const std::string& name) {
  for (const Verdict verdict : {Verdict::kFast, Verdict::kSlow, Verdict::kSame}) {
    if (name == VerdictName(verdict)) return verdict;
  }
  return Verdict::kAmbiguous;
}

void FillMeasured(const Measured& m, OutcomeFields* fields) {
  fields->verdict = VerdictName(m.verdict);
  fields->speedup = m.speedup;
  fields->against_start = m.against_start;
  fields->candidate_us = m.candidate_us;
  fields->reference_us = m.reference_us;
  fields->gb_per_s = Known(m.gb_per_s);
  fields->gflop_per_s = Known(m.gflop_per_s);
  fields->floor_us = Known(m.floor_us);
  fields->max_error = m.max_error;
  fields->error_bound = m.error_bound;
}

Measured MeasuredOf(const OutcomeFields& fields) {
  Measured m;
  m.speedup = fields.speedup.value_or(Ratio{});
  m.against_start = fields.against_start;
  m.verdict = VerdictNamed(fields.verdict);
  m.candidate_us = fields.candidate_us.value_or(0);
  m.reference_us = fields.reference_us.value_or(0);
  m.gb_per_s = fields.gb_per_s.value_or(0);
  m.gflop_per_s = fields.gflop_per_s.value_or(0);
  m.floor_us = fields.floor_us.value_or(0);
  m.max_error = fields.max_error.value_or(0);
  m.error_bound = fields.error_bound.value_or(0);
  return m;
}

// JSON has no Infinity: an error that is missing beside its bound is infinite.
Wrong WrongOf(const OutcomeFields& fields, const std::string& message) {
  if (!fields.error_bound) return {message, 0, 0};
  return {message, fields.max_error.value_or(std::numeric_limits<double>::infinity()), *fields.error_bound};
}

// The reason begins with the shape, the log does not.
std::string LogOf(const OutcomeFields& fields, const std::string& message) {
  const std::string where = fields.failed_shape + ": ";
  if (!message.empty() || fields.failed_shape.empty() || !fields.reason.starts_with(where))
    return message.empty() ? fields.reason : message;
  return fields.reason.substr(where.size());
}

// The whole text of a failure.
std::string MessageOf(const Outcome& outcome) {
  return std::visit(
      Overloaded{[](const ParseFailed& o) { return o.message; }, [](const CompileFailed& o) { return o.log; },
                 [](const Refused& o) { return o.reason; }, [](const Crashed& o) { return o.message; },
                 [](const TimedOut&) { return std::string(); }, [](const Wrong& o) { return o.message; },
                 [](const Measured&) { return std::string(); }},
      outcome);
}

struct NumberField {
  const char* name;
  std::optional<double> OutcomeFields::*value;
};
constexpr NumberField kNumbers[] = {
    {"candidate_us", &OutcomeFields::candidate_us}, {"reference_us", &OutcomeFields::reference_us},
    {"floor_us", &OutcomeFields::floor_us},         {"gb_per_s", &OutcomeFields::gb_per_s},
    {"gflop_per_s", &OutcomeFields::gflop_per_s},   {"max_error", &OutcomeFields::max_error},
    {"error_bound", &OutcomeFields::error_bound},   {"timeout_limit_s", &OutcomeFields::timeout_limit_s}};
struct TextField {
  const char* name;
  std::string OutcomeFields::*value;
};
constexpr TextField kTexts[] = {{"outcome", &OutcomeFields::outcome},
                                {"reason", &OutcomeFields::reason},
                                {"verdict", &OutcomeFields::verdict},
                                {"failed_shape", &OutcomeFields::failed_shape},
                                {"timeout_phase", &OutcomeFields::timeout_phase}};

Json NumberOrNull(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Json(*value) : Json();
}
Json TextOrNull(const std::string& text) { return text.empty() ? Json() : Json(text); }

// `prefix` is empty for the speed-up, whose standard error and counts have no prefix.
void AddRatio(const std::string& name, const std::string& prefix, const std::optional<Ratio>& ratio,
              Json* json) {
  (*json)[name] = ratio ? NumberOrNull(ratio->value) : Json();
  (*json)[name + "_low"] = ratio ? NumberOrNull(ratio->low) : Json();
  (*json)[name + "_high"] = ratio ? NumberOrNull(ratio->high) : Json();
  (*json)[prefix + "log_se"] = ratio ? NumberOrNull(ratio->log_se) : Json();
  (*json)[prefix + "pairs"] = ratio ? Json(ratio->pairs) : Json();
  (*json)[prefix + "processes"] = ratio ? Json(ratio->processes) : Json();
}

template <class Value>
std::optional<Value> NumberIn(const Json& json, const std::string& name) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_number()) return std::nullopt;
  return found->get<Value>();
}

std::string TextIn(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

std::optional<Ratio> RatioIn(const Json& json, const std::string& name, const std::string& prefix) {
  const auto value = NumberIn<double>(json, name), low = NumberIn<double>(json, name + "_low"),
             high = NumberIn<double>(json, name + "_high");
  if (!value || !low || !high) return std::nullopt;
  return Ratio{*value,
               *low,
               *high,
               NumberIn<double>(json, prefix + "log_se").value_or(0),
               NumberIn<int>(json, prefix + "pairs").value_or(0),
               NumberIn<int>(json, prefix + "processes").value_or(0)};
}

}  // namespace

const char* VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kFast:
      return "fast";
    case Verdict::kSlow:
      return "slow";
    case Verdict::kSame:
      return "same";
    case Verdict::kAmbiguous:
      return "ambiguous";
  }
  return "";
}

const char* OutcomeName(const Outcome& outcome) {
  static constexpr const char* kNames[] = {"parse_failed", "compile_failed", "refused", "crashed",
                                           "timed_out",    "wrong",          "measured"};
  static_assert(std::size(kNames) == std::variant_size_v<Outcome>);
  return kNames[outcome.index()];
}

std::string OutcomeReason(const Outcome& outcome) {
  return std::visit(Overloaded{[](const ParseFailed& o) { return OneLine(o.message); },
                               [](const CompileFailed& o) {
                                 return (o.where.empty() ? "" : o.where + ": ") + FirstCompileError(o.log);
                               },
                               [](const Refused& o) { return OneLine(o.reason); },
                               [](const Crashed& o) { return OneLine(o.message); },
                               [](const TimedOut& o) {
                                 return o.limit_s > 0
                                            ? fmt::format("{} took longer than {:g} s", o.phase, o.limit_s)
                                            : o.phase;
                               },
                               [](const Wrong& o) { return OneLine(o.message); },
                               [](const Measured&) { return std::string(); }},
                    outcome);
}

double Score(const Outcome& outcome) {
  const Measured* measured = std::get_if<Measured>(&outcome);
  return measured ? 0.3 + measured->speedup.value : 0.0;
}

OutcomeFields FieldsOf(const Outcome& outcome) {
  OutcomeFields fields;
  fields.outcome = OutcomeName(outcome);
  fields.reason = OutcomeReason(outcome);
  fields.compiled = fields.outcome != "parse_failed" && fields.outcome != "compile_failed";
  fields.correct = fields.outcome == "measured";
  fields.score = Score(outcome);
  if (const auto* measured = std::get_if<Measured>(&outcome)) FillMeasured(*measured, &fields);
  if (const auto* wrong = std::get_if<Wrong>(&outcome); wrong && wrong->error_bound > 0) {
    fields.max_error = wrong->max_error;
    fields.error_bound = wrong->error_bound;
  }
  if (const auto* failed = std::get_if<CompileFailed>(&outcome)) fields.failed_shape = failed->where;
  if (const auto* timed_out = std::get_if<TimedOut>(&outcome)) {
    fields.timeout_phase = timed_out->phase;
    fields.timeout_limit_s = Known(timed_out->limit_s);
  }
  return fields;
}

Outcome OutcomeOf(const OutcomeFields& fields, const std::string& message) {
  const std::string& text = message.empty() ? fields.reason : message;
  if (fields.outcome == "measured") return MeasuredOf(fields);
  if (fields.outcome == "compile_failed") return CompileFailed{LogOf(fields, message), fields.failed_shape};
  if (fields.outcome == "refused") return Refused{text};
  if (fields.outcome == "crashed") return Crashed{text};
  if (fields.outcome == "timed_out") {
    if (fields.timeout_phase.empty()) return TimedOut{text, 0};
    return TimedOut{fields.timeout_phase, fields.timeout_limit_s.value_or(0)};
  }
  if (fields.outcome == "wrong") return WrongOf(fields, text);
  return ParseFailed{text};
}

Json FieldsToJson(const OutcomeFields& fields) {
  Json json;
  for (const auto& [name, value] : kTexts) json[name] = TextOrNull(fields.*value);
  json["compiled"] = fields.compiled;
  json["correct"] = fields.correct;
  AddRatio("speedup", "", fields.speedup, &json);
  AddRatio("against_start", "against_start_", fields.against_start, &json);
  for (const auto& [name, value] : kNumbers) json[name] = NumberOrNull(fields.*value);
  json["score"] = fields.score;
  return json;
}

Json OutcomeToJson(const Outcome& outcome) {
  Json json = FieldsToJson(FieldsOf(outcome));
  json["message"] = TextOrNull(MessageOf(outcome));
  if (const auto* m = std::get_if<Measured>(&outcome))
    json["verdict_against_start"] = VerdictName(m->verdict_against_start);
  return json;
}

Outcome OutcomeFromJson(const Json& json) {
  OutcomeFields fields;
  fields.outcome = json.at("outcome").get<std::string>();
  for (const auto& [name, value] : kTexts) fields.*value = TextIn(json, name);
  for (const auto& [name, value] : kNumbers) fields.*value = NumberIn<double>(json, name);
  fields.speedup = RatioIn(json, "speedup", "");
  fields.against_start = RatioIn(json, "against_start", "against_start_");
  Outcome outcome = OutcomeOf(fields, TextIn(json, "message"));
  if (auto* m = std::get_if<Measured>(&outcome))
    m->verdict_against_start = VerdictNamed(TextIn(json, "verdict_against_start"));
  return outcome;
}

Json ShapesToJson(const std::vector<ShapeResult>& shapes) {
  Json list = Json::array();
  for (const ShapeResult& shape : shapes) {
    Json json = {{"size", shape.size}, {"symbols", shape.symbols}, {"weight", shape.weight}};
    json.update(OutcomeToJson(shape.outcome));
    json["sample_processes"] = shape.processes;
    json["peak_gb_per_s"] = NumberOrNull(Known(shape.peak_gb_per_s));
    json["peak_gflop_per_s"] = NumberOrNull(Known(shape.peak_gflop_per_s));
    list.push_back(std::move(json));
  }
  return list;
}

std::vector<ShapeResult> ShapesFromJson(const Json& json) {
  std::vector<ShapeResult> shapes;
  for (const Json& one : json) {
    ShapeResult shape;
    shape.size = one.at("size").get<std::string>();
    shape.symbols = one.at("symbols").get<std::map<std::string, int64_t>>();
    shape.weight = one.at("weight").get<double>();
    shape.outcome = OutcomeFromJson(one);
    shape.processes = NumberIn<int>(one, "sample_processes").value_or(0);
    shape.peak_gb_per_s = NumberIn<double>(one, "peak_gb_per_s").value_or(0);
    shape.peak_gflop_per_s = NumberIn<double>(one, "peak_gflop_per_s").value_or(0);
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

std::string ShapesToText(const std::vector<ShapeResult>& shapes) {
  if (shapes.empty()) return "";
  return ShapesToJson(shapes).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::vector<ShapeResult> ShapesFromText(const std::string& text) {
  if (text.empty()) return {};
  try {
    return ShapesFromJson(Json::parse(text));
  } catch (const Json::exception&) {
    return {};
  }
}

Json SettingToJson(const KnobSetting& setting) {
  if (setting.empty()) return nullptr;
  Json json = Json::object();
  for (const auto& [name, value] : setting) json[name] = value;
  return json;
}

std::string SettingToText(const KnobSetting& setting) {
  return setting.empty() ? "" : SettingToJson(setting).dump();
}

KnobSetting SettingFromText(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  KnobSetting setting;
  if (!json.is_object()) return setting;
  for (const auto& [name, value] : json.items()) {
    if (!value.is_number_integer()) return {};
    setting.emplace_back(name, value.get<int64_t>());
  }
  return setting;
}

const KnobTrial* ChosenTrial(const std::vector<KnobTrial>& trials) {
  for (const KnobTrial& trial : trials) {
    if (trial.chosen) return &trial;
  }
  return nullptr;
}

}  // namespace kevin
