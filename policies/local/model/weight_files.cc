#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>

#include "env/error.h"
#include "policies/local/files/safetensors.h"
#include "policies/local/files/tensor_list.h"
#include "policies/local/model/build_weights.h"
#include "policies/local/model/language_model.h"
#include "policies/local/model/weights.h"

namespace kevin::local {

namespace {

constexpr int64_t kStagingBytes = 64 << 20;
constexpr int64_t kReadBytes = 4 << 20;  // worth a thread
constexpr double kDeviation = 0.02;

// A weight file, read by several threads: twice as fast as copying from a mapping page by page.
class WeightFile {
 public:
  explicit WeightFile(const std::filesystem::path& path)
      : path_(path), file_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (file_ < 0) Fail(std::strerror(errno));
  }
  ~WeightFile() {
    if (file_ >= 0) close(file_);
  }
  WeightFile(const WeightFile&) = delete;
  WeightFile& operator=(const WeightFile&) = delete;

  void Read(int64_t offset, void* to, int64_t bytes) const {
    std::atomic<bool> whole = true;
    at::parallel_for(0, (bytes + kReadBytes - 1) / kReadBytes, 1, [&](int64_t begin, int64_t end) {
      for (int64_t at = begin * kReadBytes, last = std::min(bytes, end * kReadBytes); at < last;) {
        const ssize_t got =
            pread(file_, static_cast<char*>(to) + at, static_cast<size_t>(last - at), offset + at);
        if (got <= 0) whole = false;
        if (got <= 0) return;
        at += got;
      }
    });
    if (!whole) Fail("it cannot be read to its end");
  }

 private:
  [[noreturn]] void Fail(const std::string& why) const {
    throw Error(ExitCode::kBroken, path_.string() + ": " + why, "try again when nobody changes the file");
  }
  std::filesystem::path path_;
  int file_ = -1;
};

// Two pinned buffers in turn: one is filled from the file while the other is copied to the device.
class Staging {
 public:
  explicit Staging(at::Device device) : guard_(at::kCUDA), device_(device) {
    for (Buffer& buffer : buffers_) {
      buffer.bytes = at::empty({kStagingBytes}, at::TensorOptions(at::kByte).pinned_memory(true));
      buffer.sent.emplace(at::kCUDA);
    }
  }

  // `to` is contiguous, on the device.
  void Send(const WeightFile& file, int64_t offset, const at::Tensor& to) {
    const at::Tensor target = to.view({-1}).view(at::kByte);
    for (int64_t done = 0; done < target.numel(); done += kStagingBytes) {
      Buffer& buffer = buffers_[turn_++ % 2];
      const int64_t size = std::min(kStagingBytes, target.numel() - done);
      if (buffer.used) buffer.sent->synchronize();
      file.Read(offset + done, buffer.bytes.mutable_data_ptr(), size);
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
    const at::Tensor target =
        same_type ? destination : at::empty(stored->shape, destination.options().dtype(type));
    const WeightFile& file = files_.try_emplace(stored->file, stored->file).first->second;
    if (staging_) {
      staging_->Send(file, stored->file_offset, target);
    } else {
      file.Read(stored->file_offset, target.mutable_data_ptr(), static_cast<int64_t>(target.nbytes()));
    }
    if (!same_type) destination.copy_(target);
  }

 private:
  const Checkpoint& checkpoint_;
  std::map<std::filesystem::path, WeightFile> files_;
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
    // FNV-1a of the name, so that a tensor's numbers do not depend on the order of drawing.
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

std::unique_ptr<WeightSource> MakeNoSource() {
  class NoSource : public WeightSource {
   public:
    void Fill(const std::string&, const at::Tensor&) override {}
  };
  return std::make_unique<NoSource>();
}

std::unique_ptr<WeightSource> MakeRandomSource(uint64_t seed, at::Device device) {
  return std::make_unique<RandomSource>(seed, device);
}

namespace {

// Replaces quantised matrices by dense copies.
Weights Dequantized(Weights weights, at::ScalarType type) {
  for (Layer& layer : weights.layers) {
    for (Linear* linear : {&layer.qkv, &layer.o, &layer.gate_up, &layer.down}) {
      if (linear->parts.empty() || !linear->IsQuantized()) continue;
      std::vector<at::Tensor> parts;
      for (const Projection& part : linear->parts) parts.push_back(Dequantize(part.quantized, type));
      linear->weight = at::cat(parts, 0);
    }
    Experts& experts = layer.experts;
    if (experts.quantized_down.empty()) continue;
    std::vector<at::Tensor> gate_up, down;
    for (size_t i = 0; i < experts.quantized_down.size(); ++i) {
      const at::Tensor gate = Dequantize(experts.quantized_gate[i], type);
      gate_up.push_back(at::cat({gate, Dequantize(experts.quantized_up[i], type)}, 0));
      down.push_back(Dequantize(experts.quantized_down[i], type));
    }
    experts.gate_up = at::stack(gate_up);
    experts.down = at::stack(down);
  }
  return weights;
}

}  // namespace

NumberType NumberTypeOf(at::ScalarType type) {
  for (const NumberType candidate : {NumberType::kF32, NumberType::kBF16, NumberType::kF16}) {
    if (TorchType(candidate) == type) return candidate;
  }
  throw Error(ExitCode::kBroken, fmt::format("tensors of type {} are not written", c10::toString(type)));
}

void SaveTensors(const std::filesystem::path& folder, const std::map<std::string, at::Tensor>& tensors,
                 const WriteOptions& options, const std::vector<std::string>& order) {
  std::vector<std::string> names = order;
  if (names.empty()) {
    for (const auto& [name, tensor] : tensors) names.push_back(name);
  }
  std::vector<TensorToWrite> writes;
  at::Tensor on_host;  // of the tensor being written
  for (const std::string& name : names) {
    const at::Tensor& tensor = tensors.at(name);
    writes.push_back({name, NumberTypeOf(tensor.scalar_type()), tensor.sizes().vec(), [&on_host, &tensor] {
                        on_host = tensor.detach().cpu().contiguous();
                        return std::span(static_cast<const std::byte*>(on_host.const_data_ptr()),
                                         on_host.nbytes());
                      }});
  }
  WriteTensors(folder, writes, options);
}

void LanguageModel::Save(const std::filesystem::path& folder, const std::filesystem::path& files_from) const {
  const at::NoGradGuard no_gradients;
  NewFolder place(folder);
  if (!files_from.empty()) place.CopyModelFiles(files_from);
  ModelConfig config = config_;
  config.dtype = options_.dtype;
  if (!std::filesystem::exists(place.Path() / "config.json"))
    place.WriteText("config.json", ConfigJson(config));
  if (!std::filesystem::exists(place.Path() / "generation_config.json"))
    place.WriteText("generation_config.json", GenerationConfigJson(config));
  const Weights dense = Dequantized(MergedWeights(), TorchType(options_.dtype));
  std::vector<std::string> order;
  for (const ExpectedTensor& tensor : ExpectedTensors(config_)) order.push_back(tensor.name);
  SaveTensors(place.Path(), NamedTensors(dense, config_), {}, order);
  place.Commit();
}

}  // namespace kevin::local
