#include "policies/local/files/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "env/error.h"

namespace kevin::local {

namespace {

using HeaderJson = nlohmann::json;

class HeaderReader {
 public:
  HeaderReader(std::span<const std::byte> bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  std::vector<HeaderEntry> Read() {
    ReadLength();
    const HeaderJson json = Parse();
    if (!json.is_object()) Fail("its header is no JSON object");
    std::vector<HeaderEntry> entries;
    for (const auto& [name, fields] : json.items()) {
      if (name != "__metadata__") entries.push_back(Entry(name, fields));
    }
    // Empty tensors first, so that the check of neighbours can skip them.
    std::sort(entries.begin(), entries.end(), [](const HeaderEntry& a, const HeaderEntry& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
    });
    CheckCover(entries);
    return entries;
  }

 private:
  [[noreturn]] void Fail(const std::string& why) const {
    throw Error(ExitCode::kBadRequest, file_ + " is no sound safetensors file: " + why,
                "download or write the file again");
  }

  void ReadLength() {
    if (bytes_.size() < kHeaderLengthBytes) Fail(fmt::format("it has only {} bytes", bytes_.size()));
    uint64_t length = 0;
    std::memcpy(&length, bytes_.data(), sizeof(length));
    if (length > kLargestHeader)
      Fail(fmt::format("its header claims {} bytes; {} are allowed", length, kLargestHeader));
    if (length > bytes_.size() - kHeaderLengthBytes)
      Fail(fmt::format("its header claims {} bytes, the file has {} (truncated?)", length, bytes_.size()));
    data_begin_ = kHeaderLengthBytes + length;
    data_bytes_ = bytes_.size() - data_begin_;
  }

  // Rejects duplicate names: JSON readers keep the last one.
  HeaderJson Parse() const {
    const char* begin = reinterpret_cast<const char*>(bytes_.data()) + kHeaderLengthBytes;
    const char* end = reinterpret_cast<const char*>(bytes_.data()) + data_begin_;
    std::vector<std::set<std::string>> keys;
    std::string twice;
    const auto watch = [&](int, HeaderJson::parse_event_t event, HeaderJson& parsed) {
      if (event == HeaderJson::parse_event_t::object_start) keys.emplace_back();
      if (event == HeaderJson::parse_event_t::object_end) keys.pop_back();
      if (event == HeaderJson::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second)
        twice = parsed.get<std::string>();
      return true;
    };
    HeaderJson json;
    try {
      json = HeaderJson::parse(begin, end, watch);
    } catch (const HeaderJson::exception&) {
      Fail("its header is not JSON");
    }
    if (!twice.empty()) Fail(fmt::format("its header has `{}` twice", twice));
    return json;
  }

  HeaderEntry Entry(const std::string& name, const HeaderJson& fields) const {
    HeaderEntry entry;
    entry.name = name;
    if (!fields.is_object()) Fail(fmt::format("tensor `{}` is described by no object", name));
    const auto dtype = fields.find("dtype"), shape = fields.find("shape"),
               offsets = fields.find("data_offsets");
    if (dtype == fields.end() || !dtype->is_string()) Fail(fmt::format("tensor `{}` has no dtype", name));
    const std::optional<NumberType> type = NumberTypeNamed(dtype->get<std::string>());
    if (!type) Fail(fmt::format("tensor `{}` has unknown dtype {}", name, dtype->get<std::string>()));
    entry.type = *type;
    if (shape == fields.end() || !shape->is_array()) Fail(fmt::format("tensor `{}` has no shape", name));
    const uint64_t size = Size(name, *shape, entry);
    if (offsets == fields.end() || !offsets->is_array() || offsets->size() != 2 ||
        !(*offsets)[0].is_number_unsigned() || !(*offsets)[1].is_number_unsigned())
      Fail(fmt::format("tensor `{}` has no data_offsets [begin, end]", name));
    const uint64_t begin = (*offsets)[0].get<uint64_t>(), end = (*offsets)[1].get<uint64_t>();
    if (begin > end) Fail(fmt::format("tensor `{}` ends ({}) before it begins ({})", name, end, begin));
    if (end > data_bytes_)
      Fail(fmt::format("tensor `{}` ends at byte {} of the data, which has {} (truncated?)", name, end,
                       data_bytes_));
    if (end - begin != size)
      Fail(fmt::format("tensor `{}` has {} bytes; its shape and dtype make {}", name, end - begin, size));
    entry.begin = data_begin_ + begin;
    entry.end = data_begin_ + end;
    return entry;
  }

  uint64_t Size(const std::string& name, const HeaderJson& shape, HeaderEntry& entry) const {
    uint64_t size = static_cast<uint64_t>(BytesOf(entry.type));
    for (const HeaderJson& dimension : shape) {
      if (!dimension.is_number_unsigned() ||
          dimension.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
        Fail(fmt::format("tensor `{}` has a dimension that is no integer from 0 on", name));
      const uint64_t length = dimension.get<uint64_t>();
      if (__builtin_mul_overflow(size, length, &size))
        Fail(fmt::format("tensor `{}` has a shape beyond 2^64 bytes", name));
      entry.shape.push_back(static_cast<int64_t>(length));
    }
    return size;
  }

  void CheckCover(const std::vector<HeaderEntry>& entries) const {
    uint64_t place = data_begin_;
    const HeaderEntry* before = nullptr;
    for (const HeaderEntry& entry : entries) {
      if (entry.begin < place)
        Fail(fmt::format("tensors `{}` and `{}` overlap", before ? before->name : "", entry.name));
      if (entry.begin > place)
        Fail(fmt::format("{} bytes before tensor `{}` belong to none", entry.begin - place, entry.name));
      place = entry.end;
      before = &entry;
    }
    if (place != bytes_.size())
      Fail(fmt::format("{} bytes at its end belong to no tensor", bytes_.size() - place));
  }

  std::span<const std::byte> bytes_;
  const std::string& file_;
  uint64_t data_begin_ = 0, data_bytes_ = 0;
};

}  // namespace

std::vector<HeaderEntry> ReadHeader(std::span<const std::byte> file_bytes, const std::string& file) {
  return HeaderReader(file_bytes, file).Read();
}

namespace {

constexpr char kSingle[] = "model.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";
constexpr uintmax_t kLargestIndex = 200'000'000;

[[noreturn]] void Refuse(const std::filesystem::path& path, const std::string& why) {
  throw Error(ExitCode::kBadRequest, path.string() + ": " + why, "download or write the model again");
}

// The file of each tensor, from the index.
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
