#include "env/ceilings.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "env/error.h"
#include "env/problem/text.h"
#include "env/process/files.h"

namespace kevin {
namespace {

using nlohmann::json;

constexpr double kMostGigaPerS = 1e9;  // larger values are no measurements

bool IsRate(double value) { return value > 0 && value < kMostGigaPerS; }

}  // namespace

const char* UnitFor(const Workload& workload, bool on_gpu) {
  if (!on_gpu) return kFp32Unit;
  if (workload.precision == "fp16") return kFp16Unit;
  if (workload.precision == "bf16") return kBf16Unit;
  return workload.tf32 ? kTf32Unit : kFp32Unit;
}

double GflopCeiling(const Ceilings& ceilings, const Workload& workload, bool on_gpu) {
  const auto found = ceilings.gflop_per_s.find(UnitFor(workload, on_gpu));
  return found == ceilings.gflop_per_s.end() ? 0 : found->second;
}

SplitCeiling SplitCeilingOf(const std::map<std::string, double>& gflop_per_s) {
  const auto rate_of = [&](const char* unit) {
    const auto found = gflop_per_s.find(unit);
    return found == gflop_per_s.end() ? 0.0 : found->second;
  };
  SplitCeiling best;
  best.gflop_per_s = rate_of(kFp32Unit);
  for (const SplitCeiling& split :
       {SplitCeiling{kTf32Unit, 2, 3}, SplitCeiling{kFp16Unit, 2, 3}, SplitCeiling{kBf16Unit, 3, 6}}) {
    const double rate = rate_of(split.unit);
    if (rate / split.products <= best.gflop_per_s) continue;
    best = split;
    best.unit_gflop_per_s = rate, best.gflop_per_s = rate / split.products;
  }
  return best.products > 0 ? best : SplitCeiling();
}

Ceilings Larger(const Ceilings& a, const Ceilings& b) {
  Ceilings larger = a;
  larger.gb_per_s = std::max(a.gb_per_s, b.gb_per_s);
  for (const auto& [unit, rate] : b.gflop_per_s)
    larger.gflop_per_s[unit] = std::max(larger.gflop_per_s[unit], rate);
  larger.is_quiet = a.is_quiet || b.is_quiet;
  larger.measured = a.measured + b.measured;
  return larger;
}

CeilingStore::CeilingStore(std::filesystem::path folder, std::string key)
    : file_(std::move(folder) / (Sha256Hex(key).substr(0, 32) + ".json")), key_(std::move(key)) {}

const Ceilings& CeilingStore::Known() {
  if (!is_known_) Read();
  return ceilings_;
}

const Ceilings& CeilingStore::Get(const std::function<Ceilings()>& measure) {
  if (!is_known_) Read();
  const bool is_final = is_known_ && (ceilings_.is_quiet || ceilings_.measured >= kMostMeasured);
  if (has_measured_ || is_final) return ceilings_;
  const Ceilings measured = measure();
  // A busy machine only hides what is possible.
  ceilings_ = is_known_ ? Larger(ceilings_, measured) : measured;
  is_known_ = has_measured_ = true;
  Write();
  return ceilings_;
}

void CeilingStore::See(double gflop_per_s, const std::string& unit,
                       const std::function<Ceilings()>& measure) {
  const auto found = ceilings_.gflop_per_s.find(unit);
  if (has_measured_again_ || ceilings_.measured >= kMostMeasured || found == ceilings_.gflop_per_s.end() ||
      gflop_per_s <= kTolerance * found->second)
    return;
  has_measured_again_ = true;
  ceilings_ = Larger(ceilings_, measure());
  Write();
}

void CeilingStore::Read() {
  std::ifstream in(file_);
  const json read = json::parse(in, nullptr, false);
  try {
    if (read.at("key") != key_) return;
    Ceilings ceilings;
    ceilings.gb_per_s = read.at("gb_per_s");
    ceilings.gflop_per_s = read.at("gflop_per_s");
    ceilings.is_quiet = read.at("is_quiet");
    ceilings.measured = read.at("measured");
    for (const auto& [unit, rate] : ceilings.gflop_per_s) {
      if (!IsRate(rate)) return;
    }
    if (!IsRate(ceilings.gb_per_s)) return;
    ceilings_ = std::move(ceilings);
    is_known_ = true;
  } catch (const json::exception&) {
  }
}

void CeilingStore::Write() const {
  const json whole = {{"key", key_},
                      {"gb_per_s", ceilings_.gb_per_s},
                      {"gflop_per_s", ceilings_.gflop_per_s},
                      {"is_quiet", ceilings_.is_quiet},
                      {"measured", ceilings_.measured}};
  std::error_code ignored;
  std::filesystem::create_directories(file_.parent_path(), ignored);
  try {
    WriteFile(file_.string(), whole.dump(1) + "\n", true);
  } catch (const Error&) {
  }
}

}  // namespace kevin
