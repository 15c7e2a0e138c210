// The parts of a session (session.h) that concern Python workers (env/python/worker.py).

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>

#include "env/cpu/session.h"
#include "env/error.h"
#include "env/problem/precision.h"
#include "env/python/output_places.h"
#include "env/python/python_job.h"
#include "env/python/python_workers.h"
#include "env/verdict/verify.h"

namespace kevin {
namespace {

using nlohmann::json;

constexpr int64_t kReferenceMemory = int64_t{64} << 30;  // addresses
// Of a batch, however little is left beside the empty calls: a candidate that replaces the caller in its process pays less
// for a call than is subtracted.
constexpr double kLeastWorkShare = 0.8;
constexpr int kEmptyRepeats = 15;
constexpr double kEmptyTimeout_s = 60;

void Gather(const std::byte* from, const ConcreteTensor& tensor, const std::vector<int64_t>& strides,
            std::vector<std::byte>* to) {
  const auto element = static_cast<size_t>(DTypeBytes(tensor.spec.dtype));
  to->resize(static_cast<size_t>(tensor.bytes));
  std::vector<int64_t> index(tensor.shape.size());
  int64_t at = 0;
  for (int64_t i = 0; i < tensor.elements; ++i) {
    std::memcpy(to->data() + static_cast<size_t>(i) * element, from + at * static_cast<int64_t>(element),
                element);
    for (size_t dim = index.size(); dim-- > 0;) {
      at += strides[dim];
      if (++index[dim] < tensor.shape[dim]) break;
      at -= strides[dim] * tensor.shape[dim];
      index[dim] = 0;
    }
  }
}

double MedianOf(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

}  // namespace

void Session::AskForProcesses(int count) {
  if (is_python()) options_.workers->Ask(static_cast<size_t>(count));
}

void Session::AwaitProcesses() {
  if (is_python()) options_.workers->Await();
}

std::string Session::JobOf(bool is_reference, int64_t arena_bytes) const {
  json job = PythonJob(sized_, layout_, slots_, is_reference);
  job["threads"] = options_.threads;
  job["arena_bytes"] = arena_bytes;
  job["max_memory_bytes"] = is_reference ? kReferenceMemory : options_.limits.max_memory_mb << 20;
  job["max_file_bytes"] = kPythonFileBytes;
  job["cpu_limit_s"] = kPythonCpuLimit_s;
  return job.dump(-1, ' ', false, json::error_handler_t::replace);
}

void Session::StartReferenceWorker(const RunnerLoad& load) {
  WaitingProcess waiting = options_.workers->Take();
  SendJob(waiting.socket.get(), JobOf(true, load.outputs_bytes),
          {waiting.page_fd.get(), inputs_fd_.get(), arena_fd_.get(), problem_fd_.get(), waiting.log.get()});
  reference_process_ = std::make_unique<BatchProcess>(std::move(waiting));
  WarmReference();
  MeasureEmptyCost();
  CheckReferenceWorker();
}

std::unique_ptr<BatchProcess> Session::StartWorker(WaitingProcess waiting, int bundle_fd,
                                                   OutputMemory& outputs) {
  const int64_t wanted = (options_.limits.max_memory_mb << 20) + 4 * layout_.outputs_bytes;
  const auto bytes = static_cast<size_t>(std::min(wanted, AvailableMemoryBytes()));  // sparse
  outputs = {};
  outputs.fd = CreateSharedFile("kevin-arena", bytes);
  outputs.mapping = Mapping(outputs.fd.get(), bytes, Access::kReadWrite, false);
  SealSize(outputs.fd.get());
  outputs.places.assign(sized_.outputs.size(), std::vector<const std::byte*>(static_cast<size_t>(slots_)));
  outputs.gathered.resize(sized_.outputs.size());
  for (auto& of_slots : outputs.gathered) of_slots.resize(static_cast<size_t>(slots_));
  SendJob(waiting.socket.get(), JobOf(false, static_cast<int64_t>(bytes)),
          {waiting.page_fd.get(), inputs_fd_.get(), outputs.fd.get(), bundle_fd, waiting.log.get()});
  return std::make_unique<BatchProcess>(std::move(waiting));
}

std::string Session::LocateOutputs(const OutputMemory& outputs, const BatchProcess& process,
                                   std::span<const uint16_t> slots, bool keep) const {
  if (!is_python()) return "";
  std::vector<std::pair<uint64_t, uint64_t>> taken;
  for (size_t call = 0; call < slots.size(); ++call) {
    for (size_t o = 0; o < sized_.outputs.size(); ++o) {
      const ConcreteTensor& tensor = sized_.outputs[o];
      const uint64_t offset = process.PublishedOffset(call, o), arena_bytes = outputs.mapping.bytes();
      const auto strides = process.PublishedStrides(call, o, tensor.shape.size());
      const uint64_t extent =
          strides ? ExtentOfOutput(tensor, *strides) : static_cast<uint64_t>(tensor.bytes);
      if (std::string reason = RefusedPlace(tensor, offset, extent, arena_bytes); !reason.empty())
        return reason;
      taken.emplace_back(offset, offset + extent);
      const std::byte* place = outputs.mapping.data() + offset;
      std::vector<std::byte>& gathered = outputs.gathered[o][slots[call]];
      if (strides) {
        Gather(place, tensor, *strides, &gathered);
        place = gathered.data();
      } else if (keep) {
        gathered.assign(place, place + tensor.bytes);
        place = gathered.data();
      }
      outputs.places[o][slots[call]] = place;
    }
  }
  return RefusedOverlap(std::move(taken));
}

void Session::PoisonLocated(OutputMemory& outputs) {
  for (size_t o = 0; o < outputs.places.size(); ++o) {
    const bool is_floating = IsFloating(sized_.outputs[o].spec.dtype);
    for (size_t slot = 0; slot < outputs.places[o].size(); ++slot) {
      const std::byte*& place = outputs.places[o][slot];
      const bool lies_in_arena =
          place >= outputs.mapping.data() && place < outputs.mapping.data() + outputs.mapping.bytes();
      if (place != nullptr && lies_in_arena) {
        FillPoison({random_(), is_floating && random_() % 8 == 0}, const_cast<std::byte*>(place),
                   sized_.outputs[o].bytes / 4 * 4, options_.threads);
      }
      place = nullptr;
    }
  }
}

void Session::MeasureEmptyCost() {
  std::vector<uint16_t> all(static_cast<size_t>(slots_));
  std::iota(all.begin(), all.end(), uint16_t{0});
  const auto measure = [&](size_t calls) {
    std::vector<double> times;
    for (int i = 0; i < kEmptyRepeats; ++i) {
      double total_us = 0;
      if (reference_process_->RunEmpty(std::span(all).first(calls), kEmptyTimeout_s, &total_us))
        throw Error(ExitCode::kBroken, "the reference worker ended: " + reference_process_->Log(),
                    "try again");
      times.push_back(total_us);
    }
    return MedianOf(times);
  };
  measure(all.size());
  const double one = measure(1), many = measure(all.size());
  empty_cost_.call_us =
      all.size() > 1 ? std::max(0.0, (many - one) / static_cast<double>(all.size() - 1)) : 0;
  empty_cost_.batch_us = std::max(0.0, one - empty_cost_.call_us);
}

double Session::WorkUs(double total_us, size_t calls) const {
  if (!is_python()) return total_us;
  return std::max(total_us - empty_cost_.batch_us - static_cast<double>(calls) * empty_cost_.call_us,
                  kLeastWorkShare * total_us);
}

// The worker runs the reference's text as Python, where the truth is TorchScript: both must mean the same.
void Session::CheckReferenceWorker() {
  const uint16_t slot = 0;
  double total_us = 0;
  if (reference_process_->RunBatch(std::span(&slot, 1), kEmptyTimeout_s, &total_us) ||
      reference_process_->Publish(kEmptyTimeout_s))
    throw Error(ExitCode::kBroken, "the reference worker ended: " + reference_process_->Log(), "try again");
  truth_->BindSlot(0, Inputs(0));
  truth_->RunSlot(0);
  const std::vector<TensorView> eager = truth_->SlotOutputs(0, sized_.outputs);
  for (size_t o = 0; o < eager.size(); ++o) {
    const ConcreteTensor& tensor = sized_.outputs[o];
    if (tensor.spec.dtype != DType::kF32) continue;
    const auto* ours = reinterpret_cast<const float*>(ReferenceOutput(0, o));
    const auto* theirs = static_cast<const float*>(eager[o].data);
    double difference = 0, magnitude = 0;
    for (int64_t i = 0; i < tensor.elements; ++i) {
      if (!(ours[i] - ours[i] == 0) || !(theirs[i] - theirs[i] == 0)) continue;  // infinite or no number
      difference += (double{ours[i]} - theirs[i]) * (double{ours[i]} - theirs[i]);
      magnitude += double{theirs[i]} * theirs[i];
    }
    constexpr double kMost = 1e-3;
    if (difference > kMost * kMost * magnitude) {
      throw Error(ExitCode::kBroken,
                  fmt::format("{}: the reference gives other values in Python than in TorchScript",
                              sized_.problem->id),
                  "report it; kinds without Python are not concerned");
    }
  }
  truth_->DropOutputs();
}

}  // namespace kevin
