#include "policies/local/train/batch.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "env/error.h"

namespace kevin::local {

namespace {

// SplitMix64, because std::shuffle differs between standard libraries.
uint64_t Next(uint64_t* state) {
  uint64_t z = (*state += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

}  // namespace

std::vector<std::vector<size_t>> Pack(std::span<const int64_t> lengths, int64_t budget) {
  std::vector<size_t> order(lengths.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return lengths[a] > lengths[b]; });
  std::vector<std::vector<size_t>> groups;
  std::vector<int64_t> room;
  for (const size_t i : order) {
    size_t g = 0;
    while (g < groups.size() && room[g] < lengths[i]) ++g;
    if (g == groups.size()) groups.emplace_back(), room.push_back(budget);
    groups[g].push_back(i);
    room[g] -= lengths[i];
  }
  return groups;
}

std::vector<size_t> Shuffled(size_t n, uint64_t seed, uint64_t draw) {
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  uint64_t state = seed ^ (draw * 0xD1342543DE82EF95u);
  for (size_t i = n; i > 1; --i) std::swap(order[i - 1], order[Next(&state) % i]);
  return order;
}

Share ShareOf(size_t n, size_t parts, size_t part) { return {n * part / parts, n * (part + 1) / parts}; }

namespace {

using Json = nlohmann::json;
static_assert(std::endian::native == std::endian::little);

constexpr uint64_t kLargestFrame = uint64_t{8} << 30;

template <class T>
Json Bytes(const std::vector<T>& values) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
  return Json::binary({bytes, bytes + values.size() * sizeof(T)});
}

template <class T>
std::vector<T> Values(const Json& json) {
  const auto& bytes = json.get_binary();
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

// Calls visit(name, member) for each figure.
template <class Figures, class VisitWire>
void VisitFigures(Figures& f, const VisitWire& visit) {
  visit("step", f.step), visit("updates", f.updates), visit("loss", f.loss), visit("grad_norm", f.grad_norm);
  visit("learning_rate", f.learning_rate), visit("tokens", f.tokens);
  visit("trained_tokens", f.trained_tokens), visit("seconds", f.seconds), visit("entropy", f.entropy);
  visit("clip_low", f.clip_low), visit("clip_high", f.clip_high), visit("kl", f.kl);
  visit("policy_shift", f.policy_shift), visit("delta_logprob", f.delta_logprob);
  visit("delta_logprob_max", f.delta_logprob_max), visit("correction_mean", f.correction_mean);
  visit("correction_dropped", f.correction_dropped), visit("preference_accuracy", f.preference_accuracy);
  visit("preference_margin", f.preference_margin), visit("flops", f.flops);
  visit("sync_s", f.sync_s);
}

bool WriteBytes(int file, const void* data, size_t size) {
  const char* next = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t count = write(file, next, size);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    next += count, size -= static_cast<size_t>(count);
  }
  return true;
}

bool ReadBytes(int file, void* data, size_t size) {
  char* next = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t count = read(file, next, size);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    next += count, size -= static_cast<size_t>(count);
  }
  return true;
}

Json SamplesJson(const std::vector<Sample>& all) {
  Json samples = Json::array();
  for (const Sample& s : all) {
    samples.push_back({{"prompt", Bytes(s.prompt)},
                       {"completion", Bytes(s.completion)},
                       {"logprobs", Bytes(s.sampler_logprobs)},
                       {"temperature", s.temperature},
                       {"advantage", s.advantage},
                       {"masked", s.masked}});
  }
  return samples;
}

std::vector<Sample> SamplesFrom(const Json& json) {
  std::vector<Sample> samples;
  for (const Json& s : json) {
    Sample sample;
    sample.prompt = Values<int32_t>(s.at("prompt")), sample.completion = Values<int32_t>(s.at("completion"));
    sample.sampler_logprobs = Values<float>(s.at("logprobs"));
    sample.temperature = s.at("temperature"), sample.advantage = s.at("advantage");
    sample.masked = s.at("masked");
    samples.push_back(std::move(sample));
  }
  return samples;
}

}  // namespace

Json ToJson(const Batch& batch) {
  return {{"step", batch.step},
          {"unit", batch.unit},
          {"may_be_idle", batch.may_be_idle},
          {"samples", SamplesJson(batch.samples)},
          {"probes", SamplesJson(batch.probes)}};
}

Batch BatchFromJson(const Json& json) {
  Batch batch;
  batch.step = json.at("step"), batch.unit = json.at("unit"), batch.may_be_idle = json.at("may_be_idle");
  batch.samples = SamplesFrom(json.at("samples")), batch.probes = SamplesFrom(json.at("probes"));
  return batch;
}

Json ToJson(const StepFigures& figures) {
  Json json = Json::object();
  VisitFigures(figures, [&](const char* name, auto value) {
    json[name] = std::isnan(static_cast<double>(value)) ? Json(nullptr) : Json(value);
  });
  return json;
}

StepFigures StepFiguresFromJson(const Json& json) {
  StepFigures figures;
  VisitFigures(figures, [&](const char* name, auto& value) {
    using Value = std::remove_reference_t<decltype(value)>;
    const Json& given = json.at(name);
    value = given.is_null() ? std::numeric_limits<Value>::quiet_NaN() : given.get<Value>();
  });
  return figures;
}

// FNV-1a.
std::string FingerprintOf(const Batch& batch) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const uint8_t byte : nlohmann::json::to_msgpack(ToJson(batch))) hash = (hash ^ byte) * 0x100000001b3u;
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

bool WriteFrame(int file, const Json& message) {
  const std::vector<uint8_t> bytes = Json::to_msgpack(message);
  const uint64_t size = bytes.size();
  return WriteBytes(file, &size, sizeof(size)) && WriteBytes(file, bytes.data(), bytes.size());
}

std::optional<Json> ReadFrame(int file) {
  uint64_t size = 0;
  if (!ReadBytes(file, &size, sizeof(size))) return std::nullopt;
  if (size > kLargestFrame) throw Error(ExitCode::kBroken, "the trainer's stream is garbled");
  std::vector<uint8_t> bytes(size);
  if (!ReadBytes(file, bytes.data(), bytes.size())) return std::nullopt;
  try {
    return Json::from_msgpack(bytes);
  } catch (const Json::exception& error) {
    throw Error(ExitCode::kBroken, std::string("the trainer's stream is garbled: ") + error.what());
  }
}

}  // namespace kevin::local
