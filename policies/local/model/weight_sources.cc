#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <cstring>
#include <optional>

#include "env/error.h"
#include "policies/local/model/build_weights.h"

namespace kevin::local {
namespace {

constexpr int64_t kStagingBytes = 64 << 20;
constexpr int64_t kCopyBytes = 4 << 20;  // worth a thread
constexpr double kDeviation = 0.02;

void CopyInParallel(const std::byte* from, std::byte* to, int64_t bytes) {
  at::parallel_for(0, (bytes + kCopyBytes - 1) / kCopyBytes, 1, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * kCopyBytes, last = std::min(bytes, end * kCopyBytes);
    std::memcpy(to + first, from + first, static_cast<size_t>(last - first));
  });
}

// Two pinned buffers in turn: one is filled from the mapping while the other travels.
class Staging {
 public:
  explicit Staging(at::Device device) : guard_(at::kCUDA), device_(device) {
    for (Buffer& buffer : buffers_) {
      buffer.bytes = at::empty({kStagingBytes}, at::TensorOptions(at::kByte).pinned_memory(true));
      buffer.sent.emplace(at::kCUDA);
    }
  }

  // `to` is contiguous, on the device.
  void Send(std::span<const std::byte> bytes, const at::Tensor& to) {
    const at::Tensor target = to.view(at::kByte).view({-1});
    for (int64_t done = 0; done < static_cast<int64_t>(bytes.size()); done += kStagingBytes) {
      Buffer& buffer = buffers_[turn_++ % 2];
      const int64_t size = std::min(kStagingBytes, static_cast<int64_t>(bytes.size()) - done);
      if (buffer.used) buffer.sent->synchronize();
      CopyInParallel(bytes.data() + done, static_cast<std::byte*>(buffer.bytes.mutable_data_ptr()), size);
      target.narrow(0, done, size).copy_(buffer.bytes.narrow(0, 0, size), /*non_blocking=*/true);
      buffer.sent->record(guard_.getStream(device_));
      buffer.used = true;
    }
  }

 private:
  struct Buffer {
    at::Tensor bytes;
    std::optional<c10::Event> sent;
    bool used = false;
  };
  c10::impl::VirtualGuardImpl guard_;
  at::Device device_;
  Buffer buffers_[2];
  size_t turn_ = 0;
};

class CheckpointSource : public WeightSource {
 public:
  CheckpointSource(const Checkpoint& checkpoint, at::Device device) : checkpoint_(checkpoint) {
    if (device.is_cuda()) staging_.emplace(device);
  }

  void Fill(const std::string& name, const at::Tensor& destination) override {
    const at::NoGradGuard no_gradients;
    const StoredTensor* stored = checkpoint_.Find(name);
    if (!stored) throw Error(ExitCode::kBadRequest, fmt::format("tensor `{}` is missing", name));
    const at::ScalarType type = TorchType(stored->type);
    const bool same_type = type == destination.scalar_type();
    if (!staging_) {
      if (same_type) return Copy(*stored, destination);
      destination.copy_(at::from_blob(const_cast<std::byte*>(stored->bytes.data()), stored->shape, type));
      return;
    }
    const at::Tensor target =
        same_type ? destination : at::empty(stored->shape, destination.options().dtype(type));
    staging_->Send(stored->bytes, target);
    if (!same_type) destination.copy_(target);
  }

 private:
  static void Copy(const StoredTensor& stored, const at::Tensor& destination) {
    CopyInParallel(stored.bytes.data(), static_cast<std::byte*>(destination.mutable_data_ptr()),
                   static_cast<int64_t>(stored.bytes.size()));
  }

  const Checkpoint& checkpoint_;
  std::optional<Staging> staging_;
};

class RandomSource : public WeightSource {
 public:
  RandomSource(uint64_t seed, at::Device device) : seed_(seed), device_(device) {}

  void Fill(const std::string& name, const at::Tensor& destination) override {
    const at::NoGradGuard no_gradients;
    if (name.find("norm") != std::string::npos) {
      destination.fill_(1);
      return;
    }
    if (name.ends_with(".bias")) {
      destination.zero_();
      return;
    }
    // FNV-1a of the name, so that no tensor's numbers hang on which were drawn before it.
    uint64_t hash = seed_ ^ 14695981039346656037ull;
    for (const char letter : name) hash = (hash ^ static_cast<unsigned char>(letter)) * 1099511628211ull;
    at::Generator generator = device_.is_cuda() ? at::globalContext().defaultGenerator(device_)
                                                : at::make_generator<at::CPUGeneratorImpl>(hash);
    if (device_.is_cuda()) generator.set_current_seed(hash);
    destination.normal_(0, kDeviation, generator);
  }

 private:
  uint64_t seed_;
  at::Device device_;
};

}  // namespace

std::unique_ptr<WeightSource> MakeCheckpointSource(const Checkpoint& checkpoint, at::Device device) {
  return std::make_unique<CheckpointSource>(checkpoint, device);
}

std::unique_ptr<WeightSource> MakeRandomSource(uint64_t seed, at::Device device) {
  return std::make_unique<RandomSource>(seed, device);
}

}  // namespace kevin::local
