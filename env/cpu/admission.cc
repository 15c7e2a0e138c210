#include "env/verdict/admission.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

#include "env/cpu/checks.h"
#include "env/cpu/judge.h"
#include "env/error.h"
#include "env/problem/precision.h"

namespace kevin {
namespace {

using nlohmann::json;

constexpr double kReferenceTimeout_s = 600;

// The data from which a decoy makes its outputs.
struct AnswerContext {
  Session* session = nullptr;
  std::vector<TensorView> inputs;
  std::vector<TensorView> other_inputs;  // of another call
  std::vector<TensorView> reference;     // eager's outputs for these inputs
  std::vector<TensorView> stale;         // eager's outputs for other inputs
  bool* distinguishable = nullptr;       // becomes true once an answer differs from the rounded truth
};
using Answer = std::function<void(const AnswerContext& context, const std::vector<void*>& outputs)>;

// The check of candidates, on outputs that `answer` fills in.
Outcome VerifyAnswer(Session& session, const Answer& answer, bool* distinguishable) {
  Checker checker(session);
  OutputMemory& outputs = session.CandidateOutputs();
  const std::vector<uint16_t> slots = session.DrawSlots(std::min(kMixtureMembers, session.slots()));
  session.FillInputs(slots, 0);
  session.PoisonOutputs(outputs, slots);
  session.RestoreReference(slots);
  double total_us = 0;
  if (session.reference_process().RunBatch(slots, kReferenceTimeout_s, &total_us) ||
      session.reference_process().Publish(kReferenceTimeout_s)) {
    throw Error(ExitCode::kBroken, "the reference process ended during admission", "try again");
  }
  Measured passed;
  for (size_t call = 0; call < slots.size(); ++call) {
    AnswerContext context{
        &session,       session.Inputs(slots[call]), session.Inputs(slots[(call + 1) % slots.size()]), {}, {},
        distinguishable};
    std::vector<void*> places;
    std::vector<const std::byte*> given, reference;
    for (size_t o = 0; o < session.sized().outputs.size(); ++o) {
      const ConcreteTensor& tensor = session.sized().outputs[o];
      const auto view = [&](size_t of) {
        return TensorView{const_cast<std::byte*>(session.ReferenceOutput(of, o)), tensor.spec.dtype,
                          tensor.shape};
      };
      context.reference.push_back(view(call));
      context.stale.push_back(view((call + 1) % slots.size()));
      given.push_back(session.Output(outputs, slots[call], o));
      places.push_back(const_cast<std::byte*>(given.back()));
      reference.push_back(session.ReferenceOutput(call, o));
    }
    answer(context, places);
    const CheckResult check = checker.AgainstTruth(slots[call], given, reference);
    if (!check.ok) return WrongAnswer(check);
    if (!IsNearerItsBound(passed, check)) passed = ReportErrors(check);
  }
  return passed;
}

int64_t Elements(const TensorView& view) { return ElementCount(view.shape); }
size_t Bytes(const TensorView& view) { return static_cast<size_t>(Elements(view) * DTypeBytes(view.dtype)); }

void CopyReference(const AnswerContext& context, const std::vector<void*>& outputs) {
  for (size_t o = 0; o < outputs.size(); ++o)
    std::memcpy(outputs[o], context.reference[o].data, Bytes(context.reference[o]));
}

void SetElement(const TensorView& view, void* data, int64_t i, double value) {
  switch (view.dtype) {
    case DType::kI64:
      static_cast<int64_t*>(data)[i] = static_cast<int64_t>(value);
      return;
    case DType::kF16:
      return Round(static_cast<float>(value), static_cast<Float16*>(data) + i);
    case DType::kBF16:
      return Round(static_cast<float>(value), static_cast<BFloat16*>(data) + i);
    default:
      static_cast<float*>(data)[i] = static_cast<float>(value);
  }
}

// Sets elements [begin, end) of a tensor to one value.
void SetElements(const TensorView& view, void* data, int64_t begin, int64_t end, double value) {
  for (int64_t i = begin; i < end; ++i) SetElement(view, data, i, value);
}

double ValueAt(const TensorView& view, int64_t i) {
  switch (view.dtype) {
    case DType::kI64:
      return static_cast<double>(static_cast<const int64_t*>(view.data)[i]);
    case DType::kF16:
      return ToFloat(static_cast<const Float16*>(view.data)[i]);
    case DType::kBF16:
      return ToFloat(static_cast<const BFloat16*>(view.data)[i]);
    default:
      return static_cast<const float*>(view.data)[i];
  }
}

double MeanOf(const TensorView& view) {
  double sum = 0;
  for (int64_t i = 0; i < Elements(view); ++i) sum += ValueAt(view, i);
  return sum / static_cast<double>(std::max<int64_t>(Elements(view), 1));
}

double RmsOf(const TensorView& view, int64_t first, int64_t end) {
  double sum = 0;
  for (int64_t i = first; i < end; ++i) sum += ValueAt(view, i) * ValueAt(view, i);
  return std::sqrt(sum / static_cast<double>(std::max<int64_t>(end - first, 1)));
}

// Round to nearest even at `dropped` fewer mantissa bits; fp16's range is cut as well.
float Rounded(float value, int dropped, float largest) {
  if (!std::isfinite(value)) return value;
  uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t half = (1U << (dropped - 1)) - 1 + ((bits >> dropped) & 1);
  bits = (bits + half) & ~((1U << dropped) - 1);
  return std::clamp(std::bit_cast<float>(bits), -largest, largest);
}

void Compute(const AnswerContext& context, const std::vector<TensorView>& inputs,
             const std::vector<void*>& outputs) {
  const auto truth = context.session->truth().Truth(inputs);
  for (size_t o = 0; o < outputs.size(); ++o) {
    for (int64_t i = 0; i < Elements(context.reference[o]); ++i) {
      SetElements(context.reference[o], outputs[o], i, i + 1, truth[o].values()[static_cast<size_t>(i)]);
    }
  }
}

// Does an output of 16 bits show the difference between these exact values? One of indices always does.
bool IsDistinguishable(DType dtype, double exact, double truth) {
  if (!IsFloating(dtype)) return exact != truth;
  const double rounding = std::max(Roundoff(dtype) * std::abs(truth), SmallestStep(dtype) / 2);
  return !(std::abs(exact - truth) <= rounding) && !(std::isnan(exact) && std::isnan(truth));
}

void FromRoundedInputs(const AnswerContext& context, const std::vector<void*>& outputs,
                       const NarrowType& type) {
  std::vector<std::vector<std::byte>> rounded;
  std::vector<TensorView> inputs;
  for (const TensorView& view : context.inputs) {
    inputs.push_back(view);
    if (!IsFloating(view.dtype)) continue;
    rounded.emplace_back(Bytes(view));
    inputs.back().data = rounded.back().data();
    for (int64_t i = 0; i < Elements(view); ++i) {
      const auto value = static_cast<float>(ValueAt(view, i));
      SetElement(view, inputs.back().data, i, Rounded(value, type.dropped, type.largest));
    }
  }
  const auto coarse = context.session->truth().Truth(inputs);
  const bool is_narrow = PrecisionOf(*context.session->sized().problem) != Precision::kFp32;
  const auto truth = is_narrow ? context.session->truth().Truth(context.inputs) : coarse;
  *context.distinguishable |= !is_narrow;
  for (size_t o = 0; o < outputs.size(); ++o) {
    const TensorView& output = context.reference[o];
    for (int64_t i = 0; i < Elements(output); ++i) {
      const double exact = coarse[o].values()[static_cast<size_t>(i)];
      SetElement(output, outputs[o], i, exact);
      *context.distinguishable |=
          IsDistinguishable(output.dtype, exact, truth[o].values()[static_cast<size_t>(i)]);
    }
  }
}

// Correct in every digit that the narrower type has.
void RoundedOutputs(const AnswerContext& context, const std::vector<void*>& outputs, const NarrowType& type) {
  const auto truth = context.session->truth().Truth(context.inputs);
  for (size_t o = 0; o < outputs.size(); ++o) {
    const TensorView& output = context.reference[o];
    for (int64_t i = 0; i < Elements(output); ++i) {
      const double exact = truth[o].values()[static_cast<size_t>(i)];
      if (!IsFloating(output.dtype)) {
        SetElement(output, outputs[o], i, exact);
        continue;
      }
      const float value = Rounded(static_cast<float>(exact), type.dropped, type.largest);
      SetElement(output, outputs[o], i, value);
      *context.distinguishable |= IsDistinguishable(output.dtype, value, exact);
    }
  }
}

// A kernel that ignores some of the tensors: those come from another call.
Answer WithOther(const std::function<bool(size_t)>& is_other) {
  return [is_other](const AnswerContext& context, const std::vector<void*>& outputs) {
    std::vector<TensorView> inputs;
    for (size_t i = 0; i < context.inputs.size(); ++i)
      inputs.push_back(is_other(i) ? context.other_inputs[i] : context.inputs[i]);
    Compute(context, inputs, outputs);
  };
}

// The result of the reference when `run` computes slot 0 again.
void RunAnew(const AnswerContext& context, const std::vector<void*>& outputs,
             const std::function<void(Reference&)>& run) {
  Reference& reference = context.session->truth();
  // The reference writes into input-outputs.
  std::vector<std::vector<std::byte>> copies;
  std::vector<TensorView> inputs = context.inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!context.session->sized().inputs[i].spec.is_inout) continue;
    const auto* data = static_cast<const std::byte*>(inputs[i].data);
    copies.emplace_back(data, data + Bytes(inputs[i]));
    inputs[i].data = copies.back().data();
  }
  reference.BindSlot(0, inputs);
  run(reference);
  const std::vector<TensorView> again = reference.SlotOutputs(0, context.session->sized().outputs);
  for (size_t o = 0; o < outputs.size(); ++o) std::memcpy(outputs[o], again[o].data, Bytes(again[o]));
  reference.DropOutputs();
}

// The problem's own scale; 0 where it gives none.
double ScaleAt(const AnswerContext& context, int64_t at) {
  const DoubleTensor scales = context.session->truth().Scale(context.inputs);
  return scales.elements ? scales.values()[static_cast<size_t>(at)] : 0;
}

void OneWrongElement(const AnswerContext& context, const std::vector<void*>& outputs) {
  CopyReference(context, outputs);
  const TensorView& view = context.reference[0];
  const WrongElement at = PlaceOfWrongElement(context.session->sized().outputs[0]);
  const double correct = ValueAt(view, at.index);
  const double rms =
      std::max(RmsOf(view, 0, Elements(view)), RmsOf(view, at.row_begin, at.row_begin + at.row_length));
  const double offset =
      OffsetOfWrongElement(view.dtype, correct, rms, [&] { return ScaleAt(context, at.index); });
  SetElements(view, outputs[0], at.index, at.index + 1, correct + offset);
}

void HalfTheRows(const AnswerContext& context, const std::vector<void*>& outputs) {
  CopyReference(context, outputs);
  for (size_t o = 0; o < outputs.size(); ++o) {
    SetElements(context.reference[o], outputs[o], Elements(context.reference[o]) / 2,
                Elements(context.reference[o]), 0);
  }
}

// A coarse answer may be indistinguishable from the truth in the type of the outputs.
enum class Kind { kIncorrect, kCoarse, kCoarseContractions, kCorrect };

struct Decoy {
  std::string name;
  Answer answer;
  Kind kind = Kind::kIncorrect;
};

// Answers computed more coarsely than the problem asks.
void AddCoarse(const Session& session, std::vector<Decoy>* decoys) {
  const Precision precision = PrecisionOf(*session.sized().problem);
  const std::array<NarrowType, 2> inputs = NarrowerThan(precision);
  for (const NarrowType& type : inputs) {
    decoys->push_back(
        {std::string("inputs rounded to ") + type.name,
         [type](const AnswerContext& c, const std::vector<void*>& o) { FromRoundedInputs(c, o, type); },
         Kind::kCoarse});
  }
  // Of few elements some roundings always happen to be small.
  constexpr int64_t kEnoughToShow = 64;
  const ConcreteTensor& output = session.sized().outputs[0];
  if (precision == Precision::kFp32 || output.elements < kEnoughToShow || !IsFloating(output.spec.dtype))
    return;
  decoys->push_back({std::string("outputs rounded to ") + inputs[0].name,
                     [type = inputs[0]](const AnswerContext& c, const std::vector<void*>& o) {
                       RoundedOutputs(c, o, type);
                     },
                     Kind::kCoarse});
}

std::vector<Decoy> DecoysFor(Session& session) {
  const auto fill = [](double (*value)(const TensorView&)) {
    return [value](const AnswerContext& c, const std::vector<void*>& outputs) {
      for (size_t o = 0; o < outputs.size(); ++o) {
        SetElements(c.reference[o], outputs[o], 0, Elements(c.reference[o]), value(c.stale[o]));
      }
    };
  };
  std::vector<Decoy> decoys = {
      {"zeros", fill([](const TensorView&) { return 0.0; })},
      {"a constant", fill(MeanOf)},
      {"output for other inputs",
       [](const AnswerContext& c, const std::vector<void*>& outputs) {
         for (size_t o = 0; o < outputs.size(); ++o)
           std::memcpy(outputs[o], c.stale[o].data, Bytes(c.stale[o]));
       }},
      {"one wrong element", OneWrongElement},
      {"half the rows", HalfTheRows},
  };
  AddCoarse(session, &decoys);
  for (const BlindDecoy& blind : BlindDecoys(session.sized()))
    decoys.push_back({blind.name, WithOther(blind.is_other)});
  if (const std::optional<size_t> input = InputLikeOutput(session.sized())) {
    decoys.push_back(
        {"a copy of an input", [i = *input](const AnswerContext& c, const std::vector<void*>& outputs) {
           std::memcpy(outputs[0], c.inputs[i].data, Bytes(c.reference[0]));
         }});
  }
  for (const LeftInOut& left : LeftInOuts(session.sized())) {
    decoys.push_back({left.name, [left](const AnswerContext& c, const std::vector<void*>& outputs) {
                        CopyReference(c, outputs);
                        std::memcpy(outputs[left.output], c.inputs[left.input].data,
                                    Bytes(c.reference[left.output]));
                      }});
  }
  const auto anew = [](std::function<void(Reference&)> run) {
    return [run](const AnswerContext& c, const std::vector<void*>& outputs) { RunAnew(c, outputs, run); };
  };
  session.truth().BindSlot(0, session.Inputs(0));
  for (const CoarseDecoy& coarse :
       CoarseDecoys(*session.sized().problem, session.truth().CountContractions(0), false)) {
    const auto run = [coarse](Reference& r) { r.RunSlotCoarsely(0, coarse.dropped, coarse.is_coarse); };
    decoys.push_back({coarse.name, anew(run), Kind::kCoarseContractions});
  }
  // A reference that draws random numbers, or keeps a state, does not even agree with itself.
  decoys.push_back({"the reference once more", anew([](Reference& r) { r.RunSlot(0); }), Kind::kCorrect});
  // Torch's plain kernels of 16-bit types keep sums in them, which is incorrect.
  if (PrecisionOf(*session.sized().problem) == Precision::kFp32)
    decoys.push_back({"the reference by other algorithms", anew([](Reference& r) { r.RunSlotOtherwise(0); }),
                      Kind::kCorrect});
  return decoys;
}

}  // namespace

json AdmitProblem(Session& session) {
  std::vector<DecoyResult> results;
  for (const Decoy& decoy : DecoysFor(session)) {
    bool distinguishable = decoy.kind != Kind::kCoarse;
    const Outcome outcome = VerifyAnswer(session, decoy.answer, &distinguishable);
    const auto* passed = std::get_if<Measured>(&outcome);
    const bool is_correct = decoy.kind == Kind::kCorrect;
    DecoyResult result{decoy.name, is_correct, passed != nullptr, OutcomeReason(outcome)};
    if (is_correct && passed) result.reason = WorstErrorText(passed->max_error, passed->error_bound);
    if (decoy.kind == Kind::kCoarseContractions) {
      const auto* wrong = std::get_if<Wrong>(&outcome);
      if (passed) result.reason = WorstErrorText(passed->max_error, passed->error_bound);
      if (wrong) result.reason = WorstErrorText(wrong->max_error, wrong->error_bound);
      result.is_marked = passed && IsMarked(*session.sized().problem, decoy.name);
    }
    result.distinguishable = distinguishable || !passed;
    results.push_back(std::move(result));
  }
  return DecoysToJson(results);
}

}  // namespace kevin
