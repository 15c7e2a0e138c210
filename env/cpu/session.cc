#include "env/cpu/session.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "env/cpu/peak.h"
#include "env/error.h"
#include "env/problem/precision.h"
#include "env/process/machine.h"
#include "env/process/runner_protocol.h"
#include "env/verdict/judgement.h"

namespace kevin {

int64_t AvailableMemoryBytes() {
  std::ifstream meminfo("/proc/meminfo");
  for (std::string name, unit; meminfo >> name;) {
    int64_t kib = 0;
    meminfo >> kib;
    if (name == "MemAvailable:") return kib << 10;
    std::getline(meminfo, unit);
  }
  return int64_t{4} << 30;
}

namespace {

constexpr int kMinSlots = 6;
constexpr int64_t kSlotBudgetBytes = int64_t{1} << 30;
constexpr double kReferenceTimeout_s = 120;

// `inouts`: where input-outputs lie as in the memory of the outputs from SlotLayout::inouts_begin on.
std::vector<TensorView> InputViews(const SizedProblem& sized, const SlotLayout& layout, std::byte* inputs,
                                   std::byte* inouts, size_t slot) {
  std::vector<TensorView> views;
  for (size_t i = 0; i < sized.inputs.size(); ++i) {
    const ArgumentPlace& place = layout.tensors[i];
    std::byte* memory = place.inout ? inouts - layout.inouts_begin : inputs;
    views.push_back(
        {memory + place.offset + slot * place.stride, sized.inputs[i].spec.dtype, sized.inputs[i].shape});
  }
  return views;
}

std::vector<std::byte> BytesOf(const TensorView& view) {
  const auto* data = static_cast<const std::byte*>(view.data);
  return {data, data + ElementCount(view.shape) * DTypeBytes(view.dtype)};
}

void FillSlot(const SessionOptions& options, const SizedProblem& sized, const ValueStream& call,
              const std::vector<TensorView>& views) {
  for (size_t i = 0; i < views.size(); ++i) {
    FillTensor(sized.inputs[i].spec, options.inputs, call.OfTensor(i), sized.inputs[i].elements,
               options.threads, views[i].data);
  }
}

double TimeReference(Reference* reference, int repeats) {
  reference->RunSlot(0);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < repeats; ++i) reference->RunSlot(0);
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() /
         repeats;
}

}  // namespace

std::pair<int, int> CallsOfBatch(double candidate_us, double reference_us, int slots) {
  const double slower = std::max(candidate_us, reference_us), faster = std::min(candidate_us, reference_us);
  if (slower >= kMinBatch_us) return {1, 1};
  const double deciding = candidate_us > kSlowerThanEager * reference_us ? slower : faster;
  const int most = std::max(std::min(slots, 2), slots * 2 / 3);
  const int least = std::clamp(static_cast<int>(std::ceil(kMinBatch_us / deciding)), std::min(2, most), most);
  return {least, std::clamp(least + 1 + least / 4, least, slots)};
}

Session::Session(SessionOptions options)
    : options_(std::move(options)), sized_(AtSize(options_.problem, options_.size)) {
  sized_.problem = &options_.problem;
  if (is_python()) RequireKindTakes(options_.problem, "modelnew");
  truth_ = std::make_unique<Reference>(options_.problem, options_.threads);
  const DeviceLock lock("cpu", LockMode::kExclusive, nullptr);  // what is timed here must not be disturbed
  ChooseSlots();
  LayOut();
  StartReferenceProcess();
  MeasureFloor();
  if (!is_python()) spare_ = StartWaiting();
}

WaitingProcess Session::StartWaiting() {
  return BatchProcess::Start({options_.runner_path, "run", options_.namespaces ? "namespaces" : "plain"},
                             RunnerEnvironment(options_.threads), options_.namespaces, options_.threads);
}

// One trial slot on the heap measures how long a call takes, and so how many a batch needs.
void Session::ChooseSlots() {
  const int64_t input_bytes = SlotInputBytes(sized_);
  const SlotLayout one = LayOutSlots(sized_, 1);
  const int64_t per_slot = input_bytes + 3 * SlotOutputBytes(sized_) + one.inouts_bytes() + 8 * kSlotPage;
  const int64_t available = AvailableMemoryBytes();
  if (per_slot * 2 > available) {
    throw Error(ExitCode::kBadRequest,
                fmt::format("{} at size {} needs about {:.1f} GiB and {:.1f} GiB are free",
                            options_.problem.id, options_.size, static_cast<double>(per_slot) * 2 / (1 << 30),
                            static_cast<double>(available) / (1 << 30)),
                "choose --size small");
  }
  const auto trial_bytes = static_cast<size_t>(one.inputs_bytes + one.inouts_bytes());
  const Fd fd = CreateSharedFile("kevin-trial", trial_bytes);
  const Mapping trial(fd.get(), trial_bytes, Access::kReadWrite, true);
  const std::vector<TensorView> views =
      InputViews(sized_, one, trial.data(), trial.data() + one.inputs_bytes, 0);
  FillSlot(options_, sized_, keys_.Next(), views);
  truth_->BindSlot(0, views);
  if (HasInOuts(options_.problem)) {
    std::vector<std::vector<std::byte>> before;
    for (const TensorView& view : views) before.push_back(BytesOf(view));
    truth_->RunSlot(0);
    CheckWrites(views, before);
  }
  reference_us_ = TimeReference(truth_.get(), 1);
  if (reference_us_ < 50'000) reference_us_ = TimeReference(truth_.get(), 3);
  truth_->SlotOutputs(0, sized_.outputs);  // throws if the problem file and its reference disagree
  truth_->DropOutputs();
  const int64_t wanted = static_cast<int64_t>(std::ceil(kMinBatch_us / reference_us_ * 2)) + 2;
  const int64_t budget = std::min(kSlotBudgetBytes, available / 4) / per_slot;
  const int64_t affordable = std::max<int64_t>(budget, per_slot * kMinSlots < available / 2 ? kMinSlots : 1);
  const int64_t most = std::min<int64_t>({affordable, kMaxSlots, MostSlotsMappedApart(sized_)});
  slots_ = static_cast<int>(std::max<int64_t>(std::min(std::max<int64_t>(wanted, kMinSlots), most), 1));
}

void Session::LayOut() {
  layout_ = LayOutSlots(sized_, slots_);
  const auto bytes = static_cast<size_t>(layout_.inputs_bytes);
  inputs_fd_ = CreateSharedFile("kevin-inputs", bytes);
  inputs_ = Mapping(inputs_fd_.get(), bytes, Access::kReadWrite, true);
  SealContents(inputs_fd_.get());
  if (layout_.inouts_bytes() == 0) return;
  const auto inout_bytes = static_cast<size_t>(layout_.inouts_bytes());
  inouts_fd_ = CreateSharedFile("kevin-inouts", inout_bytes);
  inouts_ = Mapping(inouts_fd_.get(), inout_bytes, Access::kReadWrite, true);
}

// An input-output that stays as it is would let every candidate pass that leaves it; another input that changes would
// end the reference process, which cannot write it.
void Session::CheckWrites(const std::vector<TensorView>& views,
                          const std::vector<std::vector<std::byte>>& before) const {
  for (size_t i = 0; i < views.size(); ++i) {
    const bool is_inout = sized_.inputs[i].spec.is_inout;
    const bool changed = std::memcmp(views[i].data, before[i].data(), before[i].size()) != 0;
    if (changed == is_inout) continue;
    const std::string& name = sized_.inputs[i].spec.name;
    if (is_inout)
      throw Error(
          ExitCode::kBadRequest,
          fmt::format("{}: the reference leaves its input-output `{}` as it is", options_.problem.id, name),
          "write into it in `forward`, or remove role = \"inout\"");
    throw Error(ExitCode::kBadRequest,
                fmt::format("{}: the reference writes into its input `{}`", options_.problem.id, name),
                "give it role = \"inout\", or write into a new tensor");
  }
}

OutputMemory& Session::Outputs(OutputMemory* outputs) const {
  if (outputs->fd || is_python()) return *outputs;  // StartWorker makes an arena
  const auto bytes = static_cast<size_t>(layout_.outputs_bytes);
  outputs->fd = CreateSharedFile("kevin-outputs", bytes);
  outputs->mapping = Mapping(outputs->fd.get(), bytes, Access::kReadWrite, true);
  SealSize(outputs->fd.get());
  outputs->poison.assign(sized_.outputs.size(), std::vector<Poison>(static_cast<size_t>(slots_)));
  return *outputs;
}

void Session::StartReferenceProcess() {
  arena_bytes_ = std::max(AvailableMemoryBytes(), int64_t{1} << 30);  // sparse: only what is touched counts
  arena_fd_ = CreateSharedFile("kevin-arena", static_cast<size_t>(arena_bytes_));
  arena_ = Mapping(arena_fd_.get(), static_cast<size_t>(arena_bytes_), Access::kReadWrite, false);
  SealSize(arena_fd_.get());
  if (layout_.inouts_bytes() > 0)
    reference_inouts_ =
        Mapping(arena_fd_.get(), static_cast<size_t>(layout_.inouts_bytes()), Access::kReadWrite, true);
  problem_fd_ = CreateSharedFile("kevin-problem", options_.problem.text.size());
  if (pwrite(problem_fd_.get(), options_.problem.text.data(), options_.problem.text.size(), 0) < 0) {
    throw Error(ExitCode::kBroken, "cannot write the problem for the reference process");
  }
  RunnerLoad load;
  load.slots = slots_;
  load.inputs_bytes = layout_.inputs_bytes;
  load.outputs_bytes = arena_bytes_;
  if (is_python()) return StartReferenceWorker(load);
  WaitingProcess waiting =
      BatchProcess::Start({options_.evaluator_path, "reference", options_.size,
                           std::to_string(options_.threads), PrecisionName(PrecisionOf(options_.problem))},
                          TrustedEnvironment(options_.threads), false, options_.threads);
  reference_process_ = std::make_unique<BatchProcess>(std::move(waiting), load, inputs_fd_.get(),
                                                      arena_fd_.get(), problem_fd_.get());
  WarmReference();
}

void Session::WarmReference() {
  const auto fail = [&](const ProcessEnd& end) {
    return Error(ExitCode::kBroken,
                 "the reference process: " + end.message + "\n" + reference_process_->Log(),
                 "run `kevin doctor`");
  };
  if (const auto end = reference_process_->WaitReady(kReferenceTimeout_s)) throw fail(*end);
  // Warm: every block that a batch of all slots needs is in the allocator afterwards.
  std::vector<uint16_t> all(static_cast<size_t>(slots_));
  std::iota(all.begin(), all.end(), uint16_t{0});
  FillInputs(all);
  for (int i = 0; i < 2; ++i) {
    double total_us = 0;
    RestoreReference(all);
    if (const auto end = reference_process_->RunBatch(all, kReferenceTimeout_s, &total_us)) throw fail(*end);
    reference_us_ = total_us / slots_;
  }
}

void Session::MeasureFloor() {
  // At the size of one call: what was just drawn, or just written, may still lie in a cache.
  const int64_t visited = SlotInputBytes(sized_) + SlotOutputBytes(sized_);
  const Peak peak = MeasurePeak(std::min(visited, int64_t{512} << 20), options_.threads);
  best_bytes_per_s_ = std::max(best_bytes_per_s_, peak.bytes_per_s);
  best_flops_per_s_ = std::max(best_flops_per_s_, peak.flops_per_s);
  floor_us_ = std::max(sized_.min_bytes / best_bytes_per_s_, sized_.min_flops / best_flops_per_s_) * 1e6;
}

std::unique_ptr<BatchProcess> Session::StartCandidate(int library_fd, OutputMemory& outputs, int threads) {
  if (is_python()) return StartWorker(options_.workers->Take(), library_fd, outputs);
  const int own = threads > 0 ? threads : options_.threads;
  WaitingProcess next =
      BatchProcess::Start({options_.runner_path, "run", options_.namespaces ? "namespaces" : "plain"},
                          RunnerEnvironment(own), options_.namespaces, own);
  if (own == options_.threads) std::swap(spare_, next);
  RunnerLoad load;
  load.slots = slots_;
  load.inputs_bytes = layout_.inputs_bytes;
  load.outputs_bytes = layout_.outputs_bytes;
  load.inouts_begin = layout_.inouts_begin;
  load.max_memory_bytes = options_.limits.max_memory_mb << 20;
  load.arguments = layout_.arguments;
  return std::make_unique<BatchProcess>(std::move(next), load, inputs_fd_.get(), outputs.fd.get(),
                                        library_fd);
}

std::vector<uint16_t> Session::DrawSlots(int calls) {
  std::vector<uint16_t> all(static_cast<size_t>(slots_));
  std::iota(all.begin(), all.end(), uint16_t{0});
  std::shuffle(all.begin(), all.end(), random_);
  all.resize(static_cast<size_t>(std::clamp(calls, 1, slots_)));
  return all;
}

int Session::FillInputs(std::span<const uint16_t> slots, int member) {
  const ValueStream drawing = keys_.Next();
  const int first = member < 0 ? drawing.member : member;
  for (size_t i = 0; i < slots.size(); ++i) {
    ValueStream call = drawing.OfCall(i);
    call.member = (first + static_cast<int>(i)) % kMixtureMembers;
    FillSlot(options_, sized_, call, Inputs(slots[i]));
  }
  return first;
}

void Session::RearrangeInputs(size_t slot) {
  const std::vector<TensorView> inputs = Inputs(slot);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ConcreteTensor& tensor = sized_.inputs[i];
    // A kernel may know the values of a stored tensor: they are part of the problem.
    if (!tensor.spec.stored) Rearrange(tensor.spec, tensor.elements, random_, inputs[i].data);
  }
}

void Session::PoisonOutputs(OutputMemory& outputs, std::span<const uint16_t> slots, int ordinary_call) {
  constexpr uint64_t kOneInOrdinary = 8;
  if (is_python()) return PoisonLocated(outputs);
  for (size_t call = 0; call < slots.size(); ++call) {
    const bool is_ordinary =
        ordinary_call >= 0 ? static_cast<int>(call) == ordinary_call : random_() % kOneInOrdinary == 0;
    for (size_t o = 0; o < sized_.outputs.size(); ++o) {
      const ArgumentPlace& place = layout_.tensors[sized_.inputs.size() + o];
      Poison& poison = outputs.poison[o][slots[call]];
      poison = {random_(), is_ordinary && IsFloating(sized_.outputs[o].spec.dtype)};
      std::byte* filled = outputs.mapping.data() + place.offset - kSlotPage + slots[call] * place.stride;
      const auto stride = static_cast<int64_t>(place.stride);
      if (!place.inout) {
        FillPoison(poison, filled, stride, options_.threads);
        continue;
      }
      const int64_t end = kSlotPage + (sized_.outputs[o].bytes + 3) / 4 * 4;  // of what RestoreInOuts writes
      FillPoison(poison, filled, kSlotPage, 1);
      FillPoison(poison, filled + end, stride - end, 1, static_cast<uint32_t>(end / 4));
    }
  }
  RestoreInOuts(outputs, slots);
}

void Session::CopyInOuts(std::byte* to, std::span<const uint16_t> slots) const {
  for (size_t o = 0; o < sized_.outputs.size(); ++o) {
    const ArgumentPlace& place = layout_.tensors[sized_.inputs.size() + o];
    if (!place.inout) continue;
    for (const uint16_t slot : slots) {
      const uint64_t at = place.offset - static_cast<uint64_t>(layout_.inouts_begin) + slot * place.stride;
      ParallelFor(sized_.outputs[o].bytes, 1 << 18, options_.threads, [&](int64_t begin, int64_t end) {
        std::memcpy(to + at + begin, inouts_.data() + at + begin, static_cast<size_t>(end - begin));
      });
    }
  }
}

void Session::RestoreInOuts(const OutputMemory& outputs, std::span<const uint16_t> slots) const {
  CopyInOuts(outputs.mapping.data() + layout_.inouts_begin, slots);
}

void Session::RestoreReference(std::span<const uint16_t> slots) {
  PoisonReference(slots);
  CopyInOuts(reference_inouts_.data(), slots);
}

// What was just written is read and written again at another speed than what was not: no side has this advantage.
void Session::PoisonReference(std::span<const uint16_t> slots) {
  if (!reference_process_) return;
  for (const auto& [slot, places] : reference_process_->places()) {
    if (!is_python() && std::find(slots.begin(), slots.end(), slot) == slots.end()) continue;
    for (size_t o = 0; o < sized_.outputs.size(); ++o) {
      if (sized_.outputs[o].spec.is_inout) continue;
      FillPoison({random_(), false}, InArena(places[o], o), sized_.outputs[o].bytes / 4 * 4,
                 options_.threads);
    }
  }
}

bool Session::IsUnwritten(const OutputMemory& outputs, size_t slot, size_t output, uint64_t word) const {
  if (sized_.outputs[output].spec.is_inout) return false;
  if (is_python()) {
    uint32_t value = 0;
    std::memcpy(&value, Output(outputs, slot, output) + word * 4, sizeof(value));
    return IsPoisonWord(value);
  }
  const Poison& poison = outputs.poison[output][slot];
  return IsAllPoison(poison, Output(outputs, slot, output) + word * 4,
                     static_cast<uint32_t>(kSlotPage / 4 + word), 1);
}

std::string Session::BrokenGuard(const OutputMemory& outputs, std::span<const uint16_t> slots) const {
  if (is_python()) return "";  // there are none: its own allocator places outputs
  for (size_t o = 0; o < sized_.outputs.size(); ++o) {
    const ArgumentPlace& place = layout_.tensors[sized_.inputs.size() + o];
    const int64_t output_words = (sized_.outputs[o].bytes + 3) / 4, guard_words = kSlotPage / 4;
    const int64_t all_words = static_cast<int64_t>(place.stride) / 4;
    for (const uint16_t slot : slots) {
      const std::byte* filled = outputs.mapping.data() + place.offset - kSlotPage + slot * place.stride;
      const auto intact = [&](int64_t begin, int64_t end) {
        return IsAllPoison(outputs.poison[o][slot], filled + begin * 4, static_cast<uint32_t>(begin),
                           end - begin);
      };
      const std::string name =
          (place.inout ? "input-output `" : "output `") + sized_.outputs[o].spec.name + "`";
      if (!intact(0, guard_words)) return "wrote before the start of " + name;
      if (!intact(guard_words + output_words, all_words)) return "wrote past the end of " + name;
    }
  }
  return "";
}

std::vector<TensorView> Session::Inputs(size_t slot) const {
  return InputViews(sized_, layout_, inputs_.data(), inouts_.data(), slot);
}

const std::byte* Session::Output(const OutputMemory& outputs, size_t slot, size_t index) const {
  if (is_python()) return outputs.places[index][slot];
  const ArgumentPlace& place = layout_.tensors[sized_.inputs.size() + index];
  return outputs.mapping.data() + place.offset + slot * place.stride;
}

const std::byte* Session::ReferenceOutput(size_t call, size_t index) const {
  return InArena(reference_process_->PublishedOffset(call, index), index);
}

std::byte* Session::InArena(uint64_t offset, size_t index) const {
  if (offset + static_cast<uint64_t>(sized_.outputs[index].bytes) > arena_.bytes()) {
    throw Error(ExitCode::kBroken, "the reference process published an output outside its memory");
  }
  return arena_.data() + offset;
}

std::vector<const std::byte*> Session::OutputsOf(const OutputMemory& outputs, size_t slot) const {
  std::vector<const std::byte*> pointers;
  for (size_t o = 0; o < sized_.outputs.size(); ++o) pointers.push_back(Output(outputs, slot, o));
  return pointers;
}

std::vector<const std::byte*> Session::ReferenceOutputsOf(size_t call) const {
  std::vector<const std::byte*> pointers;
  for (size_t o = 0; o < sized_.outputs.size(); ++o) pointers.push_back(ReferenceOutput(call, o));
  return pointers;
}

namespace {

constexpr size_t kMostBatches = 40, kFewestBatches = 5;
constexpr double kBudget_s = 3, kEagerTimeout_s = 600;

double BatchUs(Session& session, int calls) {
  const std::vector<uint16_t> slots = session.DrawSlots(calls);
  session.FillInputs(slots);
  session.RestoreReference(slots);
  FlushCaches(session.options().threads);
  double total_us = 0;
  if (session.reference_process().RunBatch(slots, kEagerTimeout_s, &total_us))
    throw Error(ExitCode::kBroken, "the reference process ended: " + session.reference_process().Log(),
                "try again");
  return total_us / calls;
}

}  // namespace

nlohmann::json MeasureEager(Session& session) {
  const DeviceLock lock("cpu", LockMode::kExclusive, nullptr);
  const int calls =
      std::clamp(static_cast<int>(std::ceil(kMinBatch_us / session.reference_us())), 1, session.slots());
  const auto start = std::chrono::steady_clock::now();
  std::vector<double> batches;
  while (batches.size() < kMostBatches) {
    const bool is_late = SecondsSince(start) > kBudget_s;
    if (is_late && batches.size() >= kFewestBatches) break;
    batches.push_back(BatchUs(session, calls));
  }
  std::sort(batches.begin(), batches.end());
  const size_t count = batches.size();
  return {{"eager_us", batches[count / 2]},
          {"low_us", batches[count / 4]},
          {"high_us", batches[count * 3 / 4]},
          {"batches", count},
          {"calls", calls},
          {"torch", TorchVersion()}};
}

}  // namespace kevin
