#include "agent/shape_records.h"

#include <fmt/format.h>

#include "agent/feedback.h"
#include "env/problem/problem.h"

namespace kevin {
namespace {

constexpr const char* kPrinted[] = {"size",
                                    "symbols",
                                    "weight",
                                    "outcome",
                                    "reason",
                                    "verdict",
                                    "speedup",
                                    "speedup_low",
                                    "speedup_high",
                                    "against_start",
                                    "against_start_low",
                                    "against_start_high",
                                    "log_se",
                                    "candidate_us",
                                    "reference_us",
                                    "floor_us",
                                    "gb_per_s",
                                    "gflop_per_s",
                                    "max_error",
                                    "error_bound",
                                    "pairs",
                                    "processes",
                                    "sample_processes",
                                    "peak_gb_per_s",
                                    "peak_gflop_per_s"};

}  // namespace

Json ShapesJson(const std::vector<ShapeResult>& shapes) {
  if (shapes.empty()) return nullptr;
  Json list = Json::array();
  for (const Json& whole : ShapesToJson(shapes)) {
    Json shape;
    for (const char* name : kPrinted) shape[name] = whole.at(name);
    list.push_back(std::move(shape));
  }
  return list;
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
