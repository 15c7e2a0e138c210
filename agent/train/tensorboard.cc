#include "agent/train/tensorboard.h"

#include <unistd.h>

#include <array>
#include <bit>

#include "env/error.h"

namespace kevin {
namespace {

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

// As TensorFlow's record files have it: a checksum that is no checksum of itself.
uint32_t Masked(const std::string& bytes) { return std::rotr(Crc32c(bytes), 15) + 0xA282EAD8u; }

}  // namespace

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
  std::array<char, 256> host{"host"};
  gethostname(host.data(), host.size() - 1);
  std::error_code ignored;
  std::filesystem::create_directories(folder, ignored);
  path_ = folder / ("events.out.tfevents." + std::to_string(static_cast<int64_t>(wall_time)) + "." +
                    host.data() + "." + std::to_string(getpid()));
  file_.open(path_, std::ios::binary);
  if (!file_)
    throw Error(ExitCode::kBadRequest, path_.string() + " cannot be written", "choose another --out");
  Record(DoubleField(kEventWallTime, wall_time) + BytesField(kEventFileVersion, "brain.Event:2"));
}

void TensorBoardFile::Record(const std::string& event) {
  const std::string length = LittleEndian(static_cast<uint64_t>(event.size()));
  file_ << length << LittleEndian(Masked(length)) << event << LittleEndian(Masked(event)) << std::flush;
  if (!file_)
    throw Error(ExitCode::kBroken, "writing " + path_.string() + " failed", "make room on the disk");
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

}  // namespace kevin
