#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "env/error.h"
#include "policies/local/files/safetensors.h"

namespace kevin::local {

namespace {

using Json = nlohmann::ordered_json;

// A file that gets its final name once it is complete and synced.
class NewFile {
 public:
  explicit NewFile(std::filesystem::path place)
      : place_(std::move(place)), temporary_(place_.string() + ".part-" + std::to_string(getpid())) {
    file_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file_ < 0)
      throw Error(ExitCode::kBadRequest,
                  fmt::format("{} cannot be written: {}", place_.string(), std::strerror(errno)),
                  "choose another folder");
  }
  ~NewFile() {
    if (file_ < 0) return;
    close(file_);
    unlink(temporary_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void Write(const void* data, size_t size) {
    const char* next = static_cast<const char*>(data);
    while (size > 0) {
      const ssize_t written = write(file_, next, std::min<size_t>(size, 1 << 30));
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) Fail();
      next += written;
      size -= static_cast<size_t>(written);
    }
  }

  void Commit() {
    if (fsync(file_) != 0) Fail();
    const int file = std::exchange(file_, -1);
    if (close(file) != 0 || rename(temporary_.c_str(), place_.c_str()) != 0) {
      const int reason = errno;
      unlink(temporary_.c_str());
      errno = reason;
      Fail();
    }
  }

 private:
  [[noreturn]] void Fail() const {
    throw Error(ExitCode::kBroken,
                fmt::format("writing {} failed: {}", place_.string(), std::strerror(errno)),
                "make room on the disk");
  }

  std::filesystem::path place_;
  std::string temporary_;
  int file_ = -1;
};

uint64_t SizeOf(const TensorToWrite& tensor) {
  uint64_t size = static_cast<uint64_t>(BytesOf(tensor.type));
  for (const int64_t length : tensor.shape) size *= static_cast<uint64_t>(length);
  return size;
}

void WriteFile(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
               const WriteOptions& options) {
  Json header = Json::object();
  if (!options.metadata.empty()) header["__metadata__"] = options.metadata;
  uint64_t place = 0;
  for (const TensorToWrite& tensor : tensors) {
    const uint64_t end = place + SizeOf(tensor);
    header[tensor.name] = {
        {"dtype", NameOf(tensor.type)}, {"shape", tensor.shape}, {"data_offsets", {place, end}}};
    place = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data begin at a multiple of 8
  const uint64_t length = text.size();
  NewFile file(path);
  file.Write(&length, kHeaderLengthBytes);
  file.Write(text.data(), text.size());
  for (const TensorToWrite& tensor : tensors) {
    const std::span<const std::byte> bytes = tensor.bytes();
    if (bytes.size() != SizeOf(tensor))
      throw Error(ExitCode::kBroken, fmt::format("tensor `{}` has {} bytes to write instead of {}",
                                                 tensor.name, bytes.size(), SizeOf(tensor)));
    file.Write(bytes.data(), bytes.size());
  }
  file.Commit();
}

// The number of tensors in each shard; a tensor larger than a shard gets its own.
std::vector<size_t> Shards(std::span<const TensorToWrite> tensors, uint64_t limit) {
  std::vector<size_t> counts = {0};
  uint64_t filled = 0;
  for (const TensorToWrite& tensor : tensors) {
    if (counts.back() > 0 && filled + SizeOf(tensor) > limit) {
      counts.push_back(0);
      filled = 0;
    }
    ++counts.back();
    filled += SizeOf(tensor);
  }
  return counts;
}

}  // namespace

void WriteTensors(const std::filesystem::path& folder, std::span<const TensorToWrite> tensors,
                  const WriteOptions& options) {
  const std::vector<size_t> counts = Shards(tensors, static_cast<uint64_t>(options.shard_bytes));
  if (counts.size() == 1) return WriteFile(folder / (options.file_name + ".safetensors"), tensors, options);
  Json weight_map = Json::object();
  uint64_t total = 0;
  size_t first = 0;
  for (size_t shard = 0; shard < counts.size(); ++shard) {
    const std::string name =
        fmt::format("{}-{:05}-of-{:05}.safetensors", options.file_name, shard + 1, counts.size());
    const std::span<const TensorToWrite> part = tensors.subspan(first, counts[shard]);
    for (const TensorToWrite& tensor : part) {
      weight_map[tensor.name] = name;
      total += SizeOf(tensor);
    }
    WriteFile(folder / name, part, options);
    first += counts[shard];
  }
  const Json index = {{"metadata", {{"total_size", total}}}, {"weight_map", weight_map}};
  const std::string text = index.dump(2) + "\n";
  NewFile file(folder / (options.file_name + ".safetensors.index.json"));
  file.Write(text.data(), text.size());
  file.Commit();
}

namespace {

bool HoldsFiles(const std::filesystem::path& place) {
  std::error_code ignored;
  return std::filesystem::exists(place, ignored) && !std::filesystem::is_empty(place, ignored);
}

// Files beside the weights, without the weights and their index.
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

void ReplaceFolder(const std::filesystem::path& place, const std::filesystem::path& next) {
  if (!std::filesystem::exists(place)) return std::filesystem::rename(next, place);
  if (renameat2(AT_FDCWD, next.c_str(), AT_FDCWD, place.c_str(), RENAME_EXCHANGE) != 0) {
    std::filesystem::remove_all(place);
    return std::filesystem::rename(next, place);
  }
  std::filesystem::remove_all(next);
}

}  // namespace kevin::local
