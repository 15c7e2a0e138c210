#include "env/cpu/admission.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>

#include "env/cpu/checker.h"
#include "env/decoy_result.h"
#include "env/error.h"

namespace kevin {
namespace {

using nlohmann::json;

constexpr double kTwinTimeout_s = 600;

// What a decoy may look at to make its outputs.
struct AnswerContext {
  Session* session = nullptr;
  std::vector<TensorView> inputs;
  std::vector<TensorView> other_inputs;  // of another call
  std::vector<TensorView> reference;     // eager's outputs for these inputs
  std::vector<TensorView> stale;         // eager's outputs for other inputs
};
using Answer = std::function<void(const AnswerContext& context, const std::vector<void*>& outputs)>;

// The check that a candidate faces, with outputs that `answer` fills in here.
Outcome VerifyAnswer(Session& session, const Answer& answer) {
  Checker checker(session);
  const OutputMemory& outputs = session.CandidateOutputs();
  const std::vector<uint16_t> slots = session.DrawSlots(std::min(kMixtureMembers, session.slots()));
  session.FillInputs(slots, 0);
  session.Poison(outputs, slots);
  double total_us = 0;
  if (session.twin().RunBatch(slots, kTwinTimeout_s, &total_us) || session.twin().Publish(kTwinTimeout_s)) {
    throw Error(ExitCode::kBroken, "the reference process ended during admission", "try again");
  }
  for (size_t call = 0; call < slots.size(); ++call) {
    AnswerContext context{
        &session, session.Inputs(slots[call]), session.Inputs(slots[(call + 1) % slots.size()]), {}, {}};
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
    if (!check.ok) return Wrong{check.message, check.max_error, check.error_bound};
  }
  return Measured{};
}

int64_t Elements(const TensorView& view) { return ElementCount(view.shape); }
size_t Bytes(const TensorView& view) { return static_cast<size_t>(Elements(view) * DTypeBytes(view.dtype)); }

void CopyReference(const AnswerContext& context, const std::vector<void*>& outputs) {
  for (size_t o = 0; o < outputs.size(); ++o)
    std::memcpy(outputs[o], context.reference[o].data, Bytes(context.reference[o]));
}

// Sets elements [begin, end) of a tensor to one value.
void SetElements(const TensorView& view, void* data, int64_t begin, int64_t end, double value) {
  for (int64_t i = begin; i < end; ++i) {
    if (view.dtype == DType::kI64) {
      static_cast<int64_t*>(data)[i] = static_cast<int64_t>(value);
    } else {
      static_cast<float*>(data)[i] = static_cast<float>(value);
    }
  }
}

double ValueAt(const TensorView& view, int64_t i) {
  return view.dtype == DType::kI64 ? static_cast<double>(static_cast<const int64_t*>(view.data)[i])
                                   : static_cast<const float*>(view.data)[i];
}

double MeanOf(const TensorView& view) {
  double sum = 0;
  for (int64_t i = 0; i < Elements(view); ++i) sum += ValueAt(view, i);
  return sum / static_cast<double>(std::max<int64_t>(Elements(view), 1));
}

double RmsOf(const TensorView& view) {
  double sum = 0;
  for (int64_t i = 0; i < Elements(view); ++i) sum += ValueAt(view, i) * ValueAt(view, i);
  return std::sqrt(sum / static_cast<double>(std::max<int64_t>(Elements(view), 1)));
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

void FromRoundedInputs(const AnswerContext& context, const std::vector<void*>& outputs, int dropped,
                       float largest) {
  std::vector<std::vector<float>> rounded;
  std::vector<TensorView> inputs;
  for (const TensorView& view : context.inputs) {
    if (view.dtype != DType::kF32) {
      inputs.push_back(view);
      continue;
    }
    const auto* values = static_cast<const float*>(view.data);
    rounded.emplace_back(values, values + Elements(view));
    for (float& value : rounded.back()) value = Rounded(value, dropped, largest);
    inputs.push_back({rounded.back().data(), view.dtype, view.shape});
  }
  Compute(context, inputs, outputs);
}

// A kernel that never looks at some of the tensors: those come from another call.
Answer WithOther(const std::function<bool(size_t)>& is_other) {
  return [is_other](const AnswerContext& context, const std::vector<void*>& outputs) {
    std::vector<TensorView> inputs;
    for (size_t i = 0; i < context.inputs.size(); ++i)
      inputs.push_back(is_other(i) ? context.other_inputs[i] : context.inputs[i]);
    Compute(context, inputs, outputs);
  };
}

// A reference that draws random numbers, or keeps a state, does not even agree with itself.
void ReferenceOnceMore(const AnswerContext& context, const std::vector<void*>& outputs) {
  Reference& reference = context.session->truth();
  reference.BindSlot(0, context.inputs);
  reference.RunSlot(0);
  const std::vector<TensorView> again = reference.SlotOutputs(0, context.session->sized().outputs);
  for (size_t o = 0; o < outputs.size(); ++o) std::memcpy(outputs[o], again[o].data, Bytes(again[o]));
  reference.DropOutputs();
}

void OneWrongElement(const AnswerContext& context, const std::vector<void*>& outputs) {
  CopyReference(context, outputs);
  const TensorView& view = context.reference[0];
  const int64_t at = Elements(view) * 2 / 3;
  const double wrong =
      view.dtype == DType::kI64 ? ValueAt(view, at) + 1 : ValueAt(view, at) + 0.01 * RmsOf(view);
  SetElements(view, outputs[0], at, at + 1, wrong);
}

void HalfTheRows(const AnswerContext& context, const std::vector<void*>& outputs) {
  CopyReference(context, outputs);
  for (size_t o = 0; o < outputs.size(); ++o) {
    SetElements(context.reference[o], outputs[o], Elements(context.reference[o]) / 2,
                Elements(context.reference[o]), 0);
  }
}

struct Decoy {
  std::string name;
  Answer answer;
  bool must_pass = false;
};

// For every input and for the weights together: does the output depend on it? Where the file says that one of
// several inputs does not matter, only for all together.
void AddBlindDecoys(const SizedProblem& sized, std::vector<Decoy>* decoys) {
  const std::vector<ConcreteTensor>& given = sized.inputs;
  const auto is_param = [given](size_t i) { return given[i].spec.is_param; };
  const auto inputs = static_cast<size_t>(
      std::count_if(given.begin(), given.end(), [](const auto& tensor) { return !tensor.spec.is_param; }));
  if (inputs > 0 && inputs < given.size()) {
    decoys->push_back({"other inputs, same weights", WithOther([=](size_t i) { return !is_param(i); })});
    decoys->push_back({"other weights, same inputs", WithOther(is_param)});
  }
  if (sized.problem->flags.contains("ignored-input")) return;
  for (size_t i = 0; inputs > 1 && i < inputs; ++i)
    decoys->push_back(
        {"other values of " + given[i].spec.name, WithOther([i](size_t at) { return at == i; })});
}

std::vector<Decoy> DecoysFor(const Session& session) {
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
      {"inputs rounded to fp16",
       [](const AnswerContext& c, const std::vector<void*>& o) { FromRoundedInputs(c, o, 13, 65504); }},
      {"inputs rounded to bf16",
       [](const AnswerContext& c, const std::vector<void*>& o) { FromRoundedInputs(c, o, 16, 3e38F); }},
  };
  AddBlindDecoys(session.sized(), &decoys);
  const ConcreteTensor& output = session.sized().outputs[0];
  for (size_t i = 0; i < session.sized().inputs.size(); ++i) {
    const ConcreteTensor& input = session.sized().inputs[i];
    if (input.elements < output.elements || input.spec.dtype != output.spec.dtype) continue;
    decoys.push_back({"a copy of an input", [i](const AnswerContext& c, const std::vector<void*>& outputs) {
                        std::memcpy(outputs[0], c.inputs[i].data, Bytes(c.reference[0]));
                      }});
    break;
  }
  decoys.push_back({"the reference once more", ReferenceOnceMore, true});
  return decoys;
}

}  // namespace

json AdmitProblem(Session& session) {
  std::vector<DecoyResult> results;
  for (const Decoy& decoy : DecoysFor(session)) {
    const Outcome outcome = VerifyAnswer(session, decoy.answer);
    results.push_back(
        {decoy.name, decoy.must_pass, std::holds_alternative<Measured>(outcome), OutcomeReason(outcome)});
  }
  return DecoysToJson(results);
}

}  // namespace kevin
