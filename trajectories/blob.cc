#include "trajectories/blob.h"

#include <sha256.h>
#include <zlib.h>

#include <array>
#include <bit>
#include <cstring>

#include "env/error.h"

namespace kevin {
namespace {

static_assert(std::endian::native == std::endian::little, "arrays are stored as they lie in memory");

[[noreturn]] void ThrowDamaged(const char* what) {
  throw Error(ExitCode::kBadRequest, std::string("the database holds a damaged ") + what,
              "this turn's token ids cannot be read; other turns are not affected");
}

template <typename T>
std::string ToBytes(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

template <typename T>
std::vector<T> FromBytes(std::string_view bytes) {
  if (bytes.size() % sizeof(T) != 0) ThrowDamaged("array");
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace

std::string ContentHash(std::string_view bytes) {
  std::array<char, SHA256_DIGEST_STRING_LENGTH> hex{};
  SHA256Data(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), hex.data());
  return hex.data();
}

std::vector<unsigned char> Compress(std::string_view bytes) {
  uLongf size = compressBound(bytes.size());
  std::vector<unsigned char> stream(size);
  if (compress(stream.data(), &size, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()) != Z_OK) {
    throw Error(ExitCode::kBroken, "out of memory while compressing token ids");
  }
  stream.resize(size);
  return stream;
}

std::string Decompress(std::string_view stream, int64_t size) {
  if (size < 0 || size > int64_t{1} << 31) ThrowDamaged("blob");
  std::string bytes(static_cast<size_t>(size), '\0');
  uLongf got = bytes.size();
  const int code = uncompress(reinterpret_cast<Bytef*>(bytes.data()), &got,
                              reinterpret_cast<const Bytef*>(stream.data()), stream.size());
  if (code != Z_OK || got != bytes.size()) ThrowDamaged("blob");
  return bytes;
}

std::string ArrayBytes(const std::vector<int32_t>& values) { return ToBytes(values); }
std::string ArrayBytes(const std::vector<float>& values) { return ToBytes(values); }
std::vector<int32_t> Int32Array(std::string_view bytes) { return FromBytes<int32_t>(bytes); }
std::vector<float> Float32Array(std::string_view bytes) { return FromBytes<float>(bytes); }

}  // namespace kevin
