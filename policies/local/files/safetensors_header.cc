#include "policies/local/files/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

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
    // Empty tensors first, so that they need not be looked at as neighbours of others.
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

  // Refuses a name given twice: JSON readers keep the last.
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

}  // namespace kevin::local
