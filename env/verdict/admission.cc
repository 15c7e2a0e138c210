#include "env/verdict/admission.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

namespace kevin {

std::string WorstErrorText(double max_error, double error_bound) {
  return fmt::format("worst error {:.2g} of {:.2g} allowed", max_error, error_bound);
}

nlohmann::json DecoysToJson(const std::vector<DecoyResult>& decoys) {
  nlohmann::json json = nlohmann::json::array();
  for (const DecoyResult& decoy : decoys) {
    json.push_back({{"name", decoy.name},
                    {"must_pass", decoy.must_pass},
                    {"passed", decoy.passed},
                    {"reason", decoy.reason},
                    {"distinguishable", decoy.distinguishable},
                    {"marked", decoy.is_marked}});
  }
  return json;
}

std::vector<DecoyResult> DecoysFromJson(const nlohmann::json& json) {
  std::vector<DecoyResult> decoys;
  for (const nlohmann::json& one : json)
    decoys.push_back({one.at("name"), one.at("must_pass"), one.at("passed"), one.at("reason"),
                      one.at("distinguishable"), one.at("marked")});
  return decoys;
}

std::array<NarrowType, 2> NarrowerThan(Precision precision) {
  constexpr NarrowType kFp16 = {"fp16", 13, 65504}, kBf16 = {"bf16", 16, 3e38F};
  constexpr NarrowType kE4m3 = {"fp8 (e4m3)", 20, 3e38F}, kE5m2 = {"fp8 (e5m2)", 21, 3e38F};
  if (precision == Precision::kFp32) return {kFp16, kBf16};
  if (precision == Precision::kFp16) return {kBf16, kE4m3};
  return {kE4m3, kE5m2};
}

std::vector<CoarseDecoy> CoarseDecoys(const Problem& problem, size_t contractions, bool tf32) {
  std::vector<CoarseDecoy> decoys;
  if (contractions < 2 || PrecisionOf(problem) != Precision::kFp32) return decoys;
  const size_t last = contractions - 1;
  for (const auto& [type, dropped] : {std::pair("TF32", 13), std::pair("bf16", 16)}) {
    if (tf32 && dropped == 13) continue;
    const auto add = [&, &type = type, &dropped = dropped](const char* which,
                                                           std::function<bool(size_t)> is_coarse) {
      decoys.push_back({fmt::format("{} in {}", type, which), dropped, std::move(is_coarse)});
    };
    add("the first contraction", [](size_t number) { return number == 0; });
    add("the last contraction", [last](size_t number) { return number == last; });
    if (contractions > 2) add("every other contraction", [](size_t number) { return number % 2 == 1; });
    add("all contractions", [](size_t) { return true; });
  }
  return decoys;
}

bool IsMarked(const Problem& problem, const std::string& decoy) {
  const auto flag = problem.flags.find("coarse-layers");
  return flag != problem.flags.end() && flag->second.find(decoy) != std::string::npos;
}

std::vector<BlindDecoy> BlindDecoys(const SizedProblem& sized) {
  const std::vector<ConcreteTensor>& given = sized.inputs;
  const auto is_param = [given](size_t i) { return given[i].spec.is_param; };
  std::vector<size_t> inputs;
  bool has_params = false;
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i].spec.stored) continue;
    if (!is_param(i)) inputs.push_back(i);
    has_params |= is_param(i);
  }
  std::vector<BlindDecoy> decoys;
  if (!inputs.empty() && has_params) {
    decoys.push_back({"other inputs, same weights", [is_param](size_t i) { return !is_param(i); }});
    decoys.push_back({"other weights, same inputs", is_param});
  }
  if (inputs.size() < 2 || sized.problem->flags.contains("ignored-input")) return decoys;
  for (const size_t i : inputs)
    decoys.push_back({"other values of " + given[i].spec.name, [i](size_t at) { return at == i; }});
  return decoys;
}

std::vector<LeftInOut> LeftInOuts(const SizedProblem& sized) {
  std::vector<LeftInOut> left;
  for (size_t o = 0; o < sized.outputs.size(); ++o) {
    if (const auto input = InOutOf(*sized.problem, o))
      left.push_back({"`" + sized.outputs[o].spec.name + "` left as it was", *input, o});
  }
  return left;
}

std::optional<size_t> InputLikeOutput(const SizedProblem& sized) {
  const ConcreteTensor& output = sized.outputs[0];
  for (size_t i = 0; i < sized.inputs.size(); ++i) {
    const ConcreteTensor& input = sized.inputs[i];
    if (input.elements >= output.elements && input.spec.dtype == output.spec.dtype) return i;
  }
  return std::nullopt;
}

WrongElement PlaceOfWrongElement(const ConcreteTensor& output) {
  const int64_t index = output.elements * 2 / 3;
  const int64_t row = output.shape.empty() ? 1 : output.shape.back();
  return {index, index / row * row, row};
}

double OffsetOfWrongElement(DType dtype, double correct, double rms, const std::function<double()>& scale) {
  if (dtype == DType::kI64) return 1;
  const double offset = 0.01 * rms;
  if (DTypeBytes(dtype) != 2) return offset;
  // Of 16-bit types a hundredth may be no more than rounding.
  return std::max(offset, 16 * Roundoff(dtype) * std::max({std::abs(correct), rms, scale()}));
}

}  // namespace kevin
