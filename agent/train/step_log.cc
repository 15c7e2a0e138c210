#include "agent/train/step_log.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <fstream>
#include <sstream>

#include "agent/json.h"
#include "env/error.h"
#include "env/process/files.h"
#include "env/process/machine.h"

namespace kevin {
namespace {

double WallTime() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

double Number(const Json& event, const char* name) {
  const Json& value = event.at(name);
  return value.is_number() ? value.get<double>() : std::nan("");
}

std::string Shown(const Json& event, const char* label, const char* name, const char* format) {
  const double value = Number(event, name);
  return std::isnan(value) ? "" : fmt::format("  {} ", label) + fmt::format(fmt::runtime(format), value);
}

std::string Duration(double seconds) {
  const auto s = static_cast<int64_t>(seconds);
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{}:{:02} min", s / 60, s % 60);
  return fmt::format("{}:{:02} h", s / 3600, s / 60 % 60);
}

// Fields of TensorFlow's Event, Summary and Summary.Value, as protocol buffers number them.
constexpr int kEventWallTime = 1, kEventStep = 2, kEventFileVersion = 3, kEventSummary = 5;
constexpr int kSummaryValue = 1, kValueTag = 1, kValueSimple = 2;
enum Wire { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

std::string Varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}
std::string Key(int field, Wire wire) { return Varint(static_cast<uint64_t>(field) << 3 | wire); }

template <class T>
std::string LittleEndian(T value) {
  std::string out;
  for (size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(value >> (8 * i) & 0xFF);
  return out;
}
std::string DoubleField(int field, double value) {
  return Key(field, kFixed64) + LittleEndian(std::bit_cast<uint64_t>(value));
}
std::string BytesField(int field, const std::string& bytes) {
  return Key(field, kBytes) + Varint(bytes.size()) + bytes;
}

// The masked checksum of TensorFlow's record files.
uint32_t Masked(const std::string& bytes) { return std::rotr(Crc32c(bytes), 15) + 0xA282EAD8u; }

}  // namespace

Json StepEvent(const LearnBatch& learned, const local::StepFigures& f, int64_t steps, double step_seconds,
               double time_left_s) {
  const BatchFacts& facts = learned.facts;
  Json e = {{"event", "step"}, {"step", f.step}, {"steps", steps}};
  e["loss"] = OrNull(f.loss), e["reward"] = OrNull(facts.reward), e["return"] = OrNull(facts.value);
  e["correct"] = OrNull(facts.correct), e["speedup"] = OrNull(facts.speedup);
  e["advantage"] = OrNull(facts.advantage), e["grad_norm"] = OrNull(f.grad_norm);
  e["learning_rate"] = OrNull(f.learning_rate), e["updates"] = f.updates;
  e["tokens"] = f.tokens, e["trained_tokens"] = f.trained_tokens;
  e["tokens_per_s"] = OrNull(static_cast<double>(f.tokens) / f.seconds);
  e["tflops"] = OrNull(f.flops / f.seconds / 1e12);
  e["samples"] = facts.samples, e["tasks"] = facts.tasks, e["problems"] = learned.problems;
  e["left_out"] = facts.without_tokens + facts.voided + facts.too_long;
  e["entropy"] = OrNull(f.entropy), e["clip_low"] = OrNull(f.clip_low), e["clip_high"] = OrNull(f.clip_high);
  e["kl"] = OrNull(f.kl), e["policy_shift"] = OrNull(f.policy_shift);
  e["delta_logprob"] = OrNull(f.delta_logprob), e["delta_logprob_max"] = OrNull(f.delta_logprob_max);
  e["correction_mean"] = OrNull(f.correction_mean), e["correction_dropped"] = OrNull(f.correction_dropped);
  e["preference_accuracy"] = OrNull(f.preference_accuracy);
  e["preference_margin"] = OrNull(f.preference_margin);
  e["reply_tokens"] = OrNull(facts.reply_tokens), e["longest_reply"] = OrNull(facts.longest_reply);
  e["cut_off"] = OrNull(facts.cut_off), e["not_okay"] = OrNull(facts.not_okay);
  e["repetition"] = OrNull(facts.repetition);
  const bool is_online = std::isfinite(facts.staleness);
  e["flat_share"] = is_online && facts.tasks > 0
                        ? Json(static_cast<double>(facts.flat_tasks) / static_cast<double>(facts.tasks))
                        : Json(nullptr);
  e["flat_tasks"] = facts.flat_tasks, e["staleness"] = OrNull(facts.staleness);
  e["parked_tasks"] = e["turns_s"] = e["generate_s"] = e["judge_s"] = nullptr;
  e["sync_s"] = OrNull(f.sync_s), e["mfu"] = nullptr;
  e["train_s"] = OrNull(f.seconds), e["seconds"] = OrNull(step_seconds),
  e["time_left_s"] = OrNull(time_left_s);
  return e;
}

void AddTurnTimes(double turns_s, const TurnTimes& times, Json* event) {
  (*event)["turns_s"] = turns_s, (*event)["parked_tasks"] = times.parked_tasks;
  if (times.generate_s > 0) (*event)["generate_s"] = times.generate_s;
  if (times.judge_s > 0) (*event)["judge_s"] = times.judge_s;
}

std::string StepLine(const Json& e) {
  std::string line = fmt::format("step {}/{}", e.at("step").get<int64_t>(), e.at("steps").get<int64_t>());
  line += Shown(e, "loss", "loss", "{:.4g}") + Shown(e, "reward", "reward", "{:.3g}");
  if (const double correct = Number(e, "correct"); !std::isnan(correct))
    line += fmt::format("  correct {:.0f} %", 100 * correct);
  if (const double flat = Number(e, "flat_share"); flat > 0)
    line += fmt::format("  flat {:.0f} %", 100 * flat);
  if (const double parked = Number(e, "parked_tasks"); parked > 0)
    line += fmt::format("  parked tasks {:.0f}", parked);
  line += Shown(e, "speed-up", "speedup", "{:.3g}x") + Shown(e, "preferred", "preference_accuracy", "{:.2f}");
  line += Shown(e, "gradient", "grad_norm", "{:.3g}") + Shown(e, "|dlogp|", "delta_logprob", "{:.2g}");
  line += Shown(e, "tokens/s", "tokens_per_s", "{:.0f}");
  line += Shown(e, "turns", "turns_s", "{:.1f} s") + Shown(e, "answered in", "generate_s", "{:.1f} s") +
          Shown(e, "judged in", "judge_s", "{:.1f} s");
  return line + "  left " + Duration(Number(e, "time_left_s"));
}

std::vector<std::string> Warnings(const Json& e, const Json& first) {
  std::vector<std::string> warnings;
  const auto above = [&](const char* name, double limit) { return Number(e, name) > limit; };
  if (above("delta_logprob", 0.05))
    warnings.push_back(fmt::format(
        "log-probabilities of trainer and sampler differ by {:.3f} per token: other weights, another "
        "temperature, or filtered sampling (top-p)?",
        Number(e, "delta_logprob")));
  if (Number(e, "not_okay") > Number(first, "not_okay") + 0.1)
    warnings.push_back(fmt::format(
        "{:.0f} % of the replies do not open as the model used to; such replies often become useless soon",
        100 * Number(e, "not_okay")));
  if (above("repetition", 0.5))
    warnings.push_back(fmt::format("replies repeat themselves ({:.0f} % of their runs of 8 tokens)",
                                   100 * Number(e, "repetition")));
  if (above("cut_off", 0.3))
    warnings.push_back(
        fmt::format("{:.0f} % of the replies were cut off by the length limit", 100 * Number(e, "cut_off")));
  if (Number(e, "reply_tokens") > 2 * Number(first, "reply_tokens"))
    warnings.push_back("replies are more than twice as long as at the start");
  return warnings;
}

StepLog::StepLog(const std::filesystem::path& folder, int64_t done)
    : path_(folder / "metrics.jsonl"), board_(folder / "tensorboard", WallTime()) {
  std::ifstream old(path_);
  std::string kept;
  for (std::string line; std::getline(old, line);) {
    const Json event = Json::parse(line, nullptr, false);
    if (event.is_discarded() || event.value("step", int64_t{0}) > done) continue;
    Note(event);
    kept += line + "\n";
  }
  WriteFile(path_.string(), kept, true);
}

void StepLog::Note(const Json& event) {
  if (event.value("event", "") == "step") {
    if (!first_) first_ = event;
  } else if (event.value("split", "") == "dev") {
    evaluated_.insert(event.at("step").get<int64_t>());
  }
}

bool StepLog::HasEvaluation(int64_t step) const { return evaluated_.contains(step); }

void StepLog::Add(const Json& event) {
  Note(event);
  std::ofstream file(path_, std::ios::app);
  file << ToLine(event) << std::flush;
  if (!file) throw Error(ExitCode::kBroken, "writing " + path_.string() + " failed", "free disk space");
  std::map<std::string, double> scalars;
  for (const auto& [name, value] : event.items()) {
    if (event.at("event") == "step" && value.is_number() && name != "step" && name != "steps")
      scalars[name] = value.get<double>();
  }
  const Json metrics = event.value("metrics", Json::object());
  for (const auto& [name, interval] : metrics.items()) {
    if (const Json& value = interval.at("value"); value.is_number())
      scalars[event.at("split").get<std::string>() + "/" + name] = value.get<double>();
  }
  board_.Add(event.at("step").get<int64_t>(), WallTime(), scalars);
}

uint32_t Crc32c(std::string_view bytes) {
  static const std::array<uint32_t, 256> kTable = [] {
    std::array<uint32_t, 256> table{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t c = i;
      for (int bit = 0; bit < 8; ++bit) c = c >> 1 ^ (c & 1 ? 0x82F63B78u : 0u);
      table[i] = c;
    }
    return table;
  }();
  uint32_t crc = ~0u;
  for (const char byte : bytes) crc = kTable[(crc ^ static_cast<uint8_t>(byte)) & 0xFF] ^ crc >> 8;
  return ~crc;
}

TensorBoardFile::TensorBoardFile(const std::filesystem::path& folder, double wall_time) {
  std::error_code ignored;
  std::filesystem::create_directories(folder, ignored);
  path_ = folder / ("events.out.tfevents." + std::to_string(static_cast<int64_t>(wall_time)) + "." +
                    HostName() + "." + std::to_string(getpid()));
  file_.open(path_, std::ios::binary);
  if (!file_)
    throw Error(ExitCode::kBadRequest, path_.string() + " cannot be written", "choose another --out");
  Record(DoubleField(kEventWallTime, wall_time) + BytesField(kEventFileVersion, "brain.Event:2"));
}

void TensorBoardFile::Record(const std::string& event) {
  const std::string length = LittleEndian(static_cast<uint64_t>(event.size()));
  file_ << length << LittleEndian(Masked(length)) << event << LittleEndian(Masked(event)) << std::flush;
  if (!file_) throw Error(ExitCode::kBroken, "writing " + path_.string() + " failed", "free disk space");
}

void TensorBoardFile::Add(int64_t step, double wall_time, const std::map<std::string, double>& scalars) {
  std::string summary;
  for (const auto& [tag, value] : scalars) {
    const std::string number =
        Key(kValueSimple, kFixed32) + LittleEndian(std::bit_cast<uint32_t>(static_cast<float>(value)));
    summary += BytesField(kSummaryValue, BytesField(kValueTag, tag) + number);
  }
  Record(DoubleField(kEventWallTime, wall_time) + Key(kEventStep, kVarint) +
         Varint(static_cast<uint64_t>(step)) + BytesField(kEventSummary, summary));
}

std::optional<double> PeakFlops(const std::string& gpu_name) {
  struct Row {
    const char* name;
    double tflops;
  };
  // Of two matching names the longer one comes first.
  constexpr Row kGpus[] = {{"B200", 2250},      {"H200 NVL", 835}, {"H200", 989},   {"GH200", 989},
                           {"H100 PCIe", 756},  {"H100 NVL", 835}, {"H100", 989},   {"H800", 989},
                           {"H20", 148},        {"A100", 312},     {"A800", 312},   {"L40S", 362},
                           {"L40", 181},        {"L4", 121},       {"A10G", 70},    {"RTX 4090", 165},
                           {"RTX 5090", 209.5}, {"A40", 149.7},    {"RTX 3090", 71}};
  for (const Row& row : kGpus) {
    if (gpu_name.find(row.name) != std::string::npos) return row.tflops * 1e12;
  }
  return std::nullopt;
}

}  // namespace kevin
