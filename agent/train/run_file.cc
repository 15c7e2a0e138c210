#include "agent/train/run_file.h"

#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "env/error.h"
#include "env/process/files.h"
#include "trajectories/identity.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr auto kRunFileLook = std::chrono::milliseconds(100);
constexpr auto kRunFilePatience = std::chrono::minutes(10);  // for the rank that writes

std::string RunDifference(const json& there, const json& here) {
  for (const auto& [name, value] : here.items()) {
    if (!there.contains(name) || there.at(name) != value) return name;
  }
  return "";
}

}  // namespace

RunFile::RunFile(const fs::path& folder, bool leads, const json& asked)
    : path_(folder / "run.json"), leads_(leads) {
  if (leads_ && !fs::exists(path_)) {
    std::error_code ignored;
    fs::create_directories(folder, ignored);
    content_ = {{"id", NewUlid()}, {"asked", asked}, {"collections", json::object()}};
    Write();
    return;
  }
  const auto end = std::chrono::steady_clock::now() + kRunFilePatience;
  while (!leads_ && !fs::exists(path_) && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(kRunFileLook);
  Read();
  const std::string other = RunDifference(content_.at("asked"), asked);
  if (other.empty()) return;
  throw Error(ExitCode::kBadRequest,
              fmt::format("{} holds a run that was asked for with another {}", folder.string(), other),
              "give the same options to go on with it, or choose another --out");
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
  throw Error(ExitCode::kBadRequest, path_.string() + " is damaged or not there",
              "choose another --out; the checkpoints in this one are good models");
}

void RunFile::Write() const {
  if (leads_) WriteFile(path_.string(), content_.dump(2) + "\n", true);
}

}  // namespace kevin
