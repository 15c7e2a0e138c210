#include "policies/local/files/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "env/error.h"
#include "policies/local/files/safetensors_header.h"

namespace kevin::local {
namespace {

constexpr char kSingle[] = "model.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";
constexpr uintmax_t kLargestIndex = 200'000'000;

[[noreturn]] void Refuse(const std::filesystem::path& path, const std::string& why) {
  throw Error(ExitCode::kBadRequest, path.string() + ": " + why, "download or write the model again");
}

// Which file each tensor is in, by the index.
std::map<std::string, std::string> ReadIndex(const std::filesystem::path& path) {
  if (std::filesystem::file_size(path) > kLargestIndex) Refuse(path, "larger than an index can be");
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  const nlohmann::json json = nlohmann::json::parse(text.str(), nullptr, false);
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object())
    Refuse(path, "no JSON with a weight_map");
  std::map<std::string, std::string> files;
  for (const auto& [name, shard] : json["weight_map"].items()) {
    if (!shard.is_string()) Refuse(path, fmt::format("tensor `{}` has no file", name));
    const std::string shard_name = shard.get<std::string>();
    // Nothing outside the folder is opened, whatever the index says.
    if (shard_name.empty() || shard_name.find('/') != std::string::npos || shard_name[0] == '.')
      Refuse(path, fmt::format("tensor `{}` is said to be in `{}`, which is no file of this folder", name,
                               shard_name));
    files[name] = shard_name;
  }
  if (files.empty()) Refuse(path, "its weight_map is empty");
  return files;
}

}  // namespace

class Checkpoint::Mapping {
 public:
  explicit Mapping(const std::filesystem::path& path) {
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) Refuse(path, std::strerror(errno));
    struct stat status = {};
    const bool regular = fstat(file, &status) == 0 && S_ISREG(status.st_mode);
    size_ = regular ? static_cast<size_t>(status.st_size) : 0;
    if (size_ > 0) data_ = mmap(nullptr, size_, PROT_READ, MAP_SHARED, file, 0);
    const int reason = errno;
    close(file);
    if (!regular) Refuse(path, "no regular file");
    if (size_ > 0 && data_ == MAP_FAILED) Refuse(path, std::strerror(reason));
  }
  ~Mapping() {
    if (size_ > 0) munmap(data_, size_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::span<const std::byte> Bytes() const { return {static_cast<const std::byte*>(data_), size_}; }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};

Checkpoint Checkpoint::Open(const std::filesystem::path& folder_or_file) {
  Checkpoint checkpoint;
  checkpoint.path_ = folder_or_file;
  std::map<std::string, std::string> index;
  std::set<std::filesystem::path> files;
  const std::filesystem::path single = folder_or_file / kSingle, index_path = folder_or_file / kIndex;
  if (!std::filesystem::is_directory(folder_or_file)) {
    files.insert(folder_or_file);
  } else if (std::filesystem::exists(index_path)) {
    index = ReadIndex(index_path);
    for (const auto& [name, shard] : index) files.insert(folder_or_file / shard);
  } else if (std::filesystem::exists(single)) {
    files.insert(single);
  } else {
    throw Error(ExitCode::kBadRequest,
                fmt::format("{} has neither {} nor {}", folder_or_file.string(), kSingle, kIndex),
                "give a folder with safetensors weights (others are not read)");
  }
  for (const std::filesystem::path& file : files) {
    if (!std::filesystem::exists(file)) {
      if (index.empty()) Refuse(file, "does not exist");
      Refuse(index_path, fmt::format("names `{}`, which is not in the folder", file.filename().string()));
    }
    const auto mapping = std::make_shared<Mapping>(file);
    checkpoint.mappings_.push_back(mapping);
    for (HeaderEntry& entry : ReadHeader(mapping->Bytes(), file.string())) {
      const auto listed = index.find(entry.name);
      if (!index.empty() && (listed == index.end() || listed->second != file.filename()))
        Refuse(file, fmt::format("has tensor `{}`, which the index {}", entry.name,
                                 listed == index.end() ? "does not name" : "says is in " + listed->second));
      StoredTensor tensor{entry.name, entry.type, entry.shape, {}, file, static_cast<int64_t>(entry.begin)};
      tensor.bytes = mapping->Bytes().subspan(entry.begin, entry.end - entry.begin);
      checkpoint.tensors_.emplace(entry.name, std::move(tensor));
    }
  }
  for (const auto& [name, shard] : index) {
    if (!checkpoint.Find(name))
      Refuse(folder_or_file / shard, fmt::format("has no tensor `{}`; the index says so", name));
  }
  return checkpoint;
}

const StoredTensor* Checkpoint::Find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

}  // namespace kevin::local
