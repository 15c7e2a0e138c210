#include "agent/train/run_folder.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <thread>

#include "agent/events.h"
#include "agent/train/batches.h"
#include "env/error.h"
#include "env/process/files.h"
#include "trajectories/identity.h"

namespace kevin {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

constexpr auto kRunFileCheck = std::chrono::milliseconds(100);
constexpr auto kChoiceLimit = std::chrono::minutes(30);
constexpr auto kRunFileLimit = std::chrono::minutes(10);  // for rank 0 to write it

std::string RunDifference(const json& there, const json& here) {
  for (const auto& [name, value] : here.items()) {
    if (!there.contains(name) || there.at(name) != value) return name;
  }
  return "";
}

constexpr size_t kMostTurns = 64, kMostBytes = 4000;

}  // namespace

RunFile::RunFile(const fs::path& folder, bool leads, const json& asked, const std::function<void()>& wait)
    : path_(folder / "run.json"), leads_(leads) {
  if (leads_ && !fs::exists(path_)) {
    std::error_code ignored;
    fs::create_directories(folder, ignored);
    content_ = {{"id", NewUlid()}, {"asked", asked}, {"collections", json::object()}};
    Write();
    return;
  }
  const auto end = std::chrono::steady_clock::now() + kRunFileLimit;
  while (!leads_ && !fs::exists(path_) && std::chrono::steady_clock::now() < end) {
    wait();
    std::this_thread::sleep_for(kRunFileCheck);
  }
  Read();
  const std::string other = RunDifference(content_.at("asked"), asked);
  if (other.empty()) return;
  throw Error(ExitCode::kBadRequest, fmt::format("{} holds a run with another {}", folder.string(), other),
              "give the same options to continue it, or choose another --out");
}

std::string RunFile::id() const { return Get("id"); }

std::optional<std::string> RunFile::Collection(const std::string& name) {
  const std::lock_guard lock(mutex_);
  if (!leads_) Read();
  const json& all = content_.at("collections");
  return all.contains(name) ? std::optional(all.at(name).get<std::string>()) : std::nullopt;
}

void RunFile::SetCollection(const std::string& name, const std::string& run) {
  const std::lock_guard lock(mutex_);
  content_["collections"][name] = run;
  Write();
}

std::optional<std::vector<std::string>> RunFile::Chosen(
    const std::string& name, const std::function<std::vector<std::string>()>& choose,
    const std::function<bool()>& is_over) {
  const auto end = std::chrono::steady_clock::now() + kChoiceLimit;
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (!leads_) Read();
      const json& all = content_["chosen"];
      if (all.contains(name)) return all.at(name).get<std::vector<std::string>>();
    }
    if (leads_) break;
    if (is_over()) return std::nullopt;
    if (std::chrono::steady_clock::now() > end)
      throw Error(ExitCode::kBroken, "rank 0 has not chosen the problems of " + name,
                  "start all ranks again with --resume");
    std::this_thread::sleep_for(kRunFileCheck);
  }
  const std::vector<std::string> chosen = choose();
  const std::lock_guard lock(mutex_);
  content_["chosen"][name] = chosen;
  Write();
  return chosen;
}

json RunFile::Get(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  return content_.value(key, json());
}

void RunFile::Set(const std::string& key, const json& value) {
  const std::lock_guard lock(mutex_);
  content_[key] = value;
  Write();
}

void RunFile::Read() {
  content_ = json::parse(std::ifstream(path_), nullptr, false);
  if (content_.is_object() && content_.contains("id") && content_.contains("asked") &&
      content_.contains("collections"))
    return;
  throw Error(ExitCode::kBadRequest, path_.string() + " is damaged or missing",
              "choose another --out; the checkpoints in this one are usable models");
}

void RunFile::Write() const {
  if (leads_) WriteFile(path_.string(), content_.dump(2) + "\n", true);
}

void KeepBest(const fs::path& output, const fs::path& checkpoint) {
  const fs::path place = output / ("best-" + checkpoint.filename().string()), link = output / "best",
                 next = output / ".best";
  try {
    fs::remove_all(place);
    std::error_code no_links;
    const auto copy = fs::copy_options::recursive;
    fs::copy(checkpoint, place, copy | fs::copy_options::create_hard_links, no_links);
    if (no_links) fs::remove_all(place), fs::copy(checkpoint, place, copy);
    const fs::path earlier = fs::is_symlink(link) ? output / fs::read_symlink(link) : fs::path();
    fs::remove(next);
    fs::create_directory_symlink(place.filename(), next);
    fs::rename(next, link);
    if (!earlier.empty() && earlier != place) fs::remove_all(earlier);
  } catch (const fs::filesystem_error& error) {
    throw Error(ExitCode::kBroken, std::string("keeping the best checkpoint failed: ") + error.what(),
                "free disk space there; --resume continues");
  }
}

void WriteRollouts(const std::filesystem::path& folder, const LearnBatch& batch) {
  std::string lines;
  const size_t stride = (batch.turns.size() + kMostTurns - 1) / kMostTurns;
  for (size_t i = 0; i < batch.turns.size(); i += stride) {
    const BatchTurn& t = batch.turns[i];
    lines += ToLine({{"step", batch.batch.step},
                     {"episode", t.episode},
                     {"turn", t.turn},
                     {"problem", t.problem},
                     {"outcome", t.outcome},
                     {"correct", t.correct},
                     {"speedup", OrNull(t.speedup)},
                     {"score", OrNull(t.score)},
                     {"return", OrNull(t.value)},
                     {"advantage", OrNull(t.advantage)},
                     {"tokens", t.tokens},
                     {"stop_reason", t.stop_reason},
                     {"model", t.model},
                     {"reply", t.reply.substr(0, kMostBytes)}});
  }
  std::filesystem::create_directories(folder);
  WriteFile((folder / fmt::format("{:08}.jsonl", batch.batch.step)).string(), lines, true);
}

}  // namespace kevin
