#include "agent/shape_records.h"

#include <fmt/format.h>

#include <optional>

#include "agent/feedback.h"
#include "agent/json.h"
#include "agent/records.h"

namespace kevin {
namespace {

// A column of the verdict, by its name in JSON.
template <class Value>
struct Field {
  const char* name;
  std::optional<Value> EvaluationRecord::*value;
};
constexpr Field<double> kNumbers[] = {{"log_se", &EvaluationRecord::log_se},
                                      {"candidate_us", &EvaluationRecord::candidate_us},
                                      {"reference_us", &EvaluationRecord::reference_us},
                                      {"floor_us", &EvaluationRecord::floor_us},
                                      {"gb_per_s", &EvaluationRecord::gb_per_s},
                                      {"gflop_per_s", &EvaluationRecord::gflop_per_s},
                                      {"max_error", &EvaluationRecord::max_error},
                                      {"error_bound", &EvaluationRecord::error_bound}};
constexpr Field<int> kCounts[] = {{"pairs", &EvaluationRecord::pairs},
                                  {"processes", &EvaluationRecord::processes}};
constexpr Field<RatioRecord> kRatios[] = {{"speedup", &EvaluationRecord::speedup},
                                          {"against_start", &EvaluationRecord::against_start}};

template <class Value>
std::optional<Value> ValueOf(const Json& json, const std::string& name) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_number()) return std::nullopt;
  return found->get<Value>();
}

Json ToJson(const ShapeResult& shape) {
  EvaluationRecord record;
  FillOutcome(shape.outcome, &record);
  Json json = {{"size", shape.size},
               {"symbols", shape.symbols},
               {"weight", shape.weight},
               {"outcome", record.outcome},
               {"reason", record.reason.empty() ? Json() : Json(record.reason)},
               {"verdict", record.verdict.empty() ? Json() : Json(record.verdict)}};
  for (const auto& [name, value] : kRatios) {
    const std::optional<RatioRecord>& ratio = record.*value;
    json[name] = ratio ? Json(ratio->value) : Json();
    json[name + std::string("_low")] = ratio ? Json(ratio->low) : Json();
    json[name + std::string("_high")] = ratio ? Json(ratio->high) : Json();
  }
  for (const auto& [name, value] : kNumbers) json[name] = OrNull(record.*value);
  for (const auto& [name, value] : kCounts) json[name] = OrNull(record.*value);
  json["sample_processes"] = shape.processes;
  json["peak_gb_per_s"] = shape.peak_gb_per_s > 0 ? Json(shape.peak_gb_per_s) : Json();
  json["peak_gflop_per_s"] = shape.peak_gflop_per_s > 0 ? Json(shape.peak_gflop_per_s) : Json();
  return json;
}

std::string TextOf(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

ShapeResult FromJson(const Json& json) {
  ShapeResult shape;
  shape.size = json.at("size");
  shape.symbols = json.at("symbols").get<Symbols>();
  shape.weight = json.at("weight");
  EvaluationRecord record;
  record.outcome = json.at("outcome");
  record.reason = TextOf(json, "reason");
  record.verdict = TextOf(json, "verdict");
  for (const auto& [name, value] : kRatios) {
    const auto ratio = ValueOf<double>(json, name), low = ValueOf<double>(json, name + std::string("_low")),
               high = ValueOf<double>(json, name + std::string("_high"));
    if (ratio && low && high) record.*value = RatioRecord{*ratio, *low, *high};
  }
  for (const auto& [name, value] : kNumbers) record.*value = ValueOf<double>(json, name);
  for (const auto& [name, value] : kCounts) record.*value = ValueOf<int>(json, name);
  shape.outcome = OutcomeFrom(record);
  shape.processes = ValueOf<int>(json, "sample_processes").value_or(0);
  shape.peak_gb_per_s = ValueOf<double>(json, "peak_gb_per_s").value_or(0);
  shape.peak_gflop_per_s = ValueOf<double>(json, "peak_gflop_per_s").value_or(0);
  return shape;
}

}  // namespace

Json ShapesJson(const std::vector<ShapeResult>& shapes) {
  Json list = Json::array();
  for (const ShapeResult& shape : shapes) list.push_back(ToJson(shape));
  return list;
}

std::string ShapesText(const std::vector<ShapeResult>& shapes) {
  if (shapes.empty()) return "{}";
  return Json{{"shapes", ShapesJson(shapes)}}.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::vector<ShapeResult> ShapesFromText(const std::string& text) {
  std::vector<ShapeResult> shapes;
  try {
    const Json json = Json::parse(text);
    if (!json.is_object() || !json.contains("shapes")) return {};
    for (const Json& shape : json.at("shapes")) shapes.push_back(FromJson(shape));
  } catch (const Json::exception&) {
    shapes.clear();
  }
  return shapes;
}

std::string ShapeLine(const ShapeResult& shape) {
  const std::string name = fmt::format("{}, weight {:g}", ShapeName(shape.size, shape.symbols), shape.weight);
  const auto* m = std::get_if<Measured>(&shape.outcome);
  if (!m) return fmt::format("{}: {}", name, OutcomeName(shape.outcome));
  return fmt::format("{}: {}, {:.4g} us against {:.4g} us", name,
                     RatioText(m->speedup.value, m->speedup.low, m->speedup.high), m->candidate_us,
                     m->reference_us);
}

}  // namespace kevin
