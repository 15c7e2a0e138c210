#include "policies/local/files/new_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <fstream>

#include "env/error.h"

namespace kevin::local {
namespace {

bool HoldsFiles(const std::filesystem::path& place) {
  std::error_code ignored;
  return std::filesystem::exists(place, ignored) && !std::filesystem::is_empty(place, ignored);
}

// Small files beside the weights; those that say which weights there are come from the writer.
bool IsModelFile(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  const std::string end = path.extension().string();
  const bool kind = end == ".json" || end == ".jinja" || end == ".txt" || end == ".model" || end == ".md" ||
                    name == "LICENSE" || name == "NOTICE";
  return kind && !name.ends_with(".index.json") && name != "adapter_config.json";
}

}  // namespace

NewFolder::NewFolder(std::filesystem::path place)
    : place_(std::filesystem::absolute(std::move(place)).lexically_normal()) {
  if (!place_.has_filename()) place_ = place_.parent_path();
  if (HoldsFiles(place_))
    throw Error(ExitCode::kBadRequest, place_.string() + " exists already", "choose another folder");
  temporary_ = place_.parent_path() / fmt::format(".{}.part-{}", place_.filename().string(), getpid());
  std::error_code error;
  std::filesystem::remove_all(temporary_, error);
  std::filesystem::create_directories(temporary_, error);
  if (error)
    throw Error(ExitCode::kBadRequest, fmt::format("{} cannot be made: {}", place_.string(), error.message()),
                "choose another folder");
}

NewFolder::~NewFolder() {
  std::error_code ignored;
  if (!committed_) std::filesystem::remove_all(temporary_, ignored);
}

void NewFolder::WriteText(const std::string& name, const std::string& text) const {
  std::ofstream file(temporary_ / name, std::ios::binary);
  file << text;
  file.close();
  if (!file)
    throw Error(ExitCode::kBroken, fmt::format("writing {} failed", (place_ / name).string()),
                "make room on the disk");
}

void NewFolder::CopyModelFiles(const std::filesystem::path& from) const {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(from, error)) {
    if (error) break;
    if (!entry.is_regular_file() || !IsModelFile(entry.path())) continue;
    std::filesystem::copy_file(entry.path(), temporary_ / entry.path().filename(), error);
    if (error) break;
  }
  if (error)
    throw Error(ExitCode::kBroken,
                fmt::format("copying the files of {} failed: {}", from.string(), error.message()));
}

void NewFolder::Commit() {
  std::error_code error;
  std::filesystem::rename(temporary_, place_, error);  // an empty folder at the place gives way
  if (error)
    throw Error(ExitCode::kBroken,
                fmt::format("{} cannot take its name: {}", place_.string(), error.message()));
  committed_ = true;
}

}  // namespace kevin::local
