#pragma once
// Bytes as table `blobs` keeps them: named by content, arrays compressed with zlib.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kevin {

std::string ContentHash(std::string_view bytes);  // SHA-256, 64 lower-case hex digits

std::vector<unsigned char> Compress(std::string_view bytes);
// Throws Error(kBadRequest) when `stream` is no zlib stream of exactly `size` bytes.
std::string Decompress(std::string_view stream, int64_t size);

// Elements as little-endian bytes and back; a trailing partial element is an Error (kBadRequest).
std::string ArrayBytes(const std::vector<int32_t>& values);
std::string ArrayBytes(const std::vector<float>& values);
std::vector<int32_t> Int32Array(std::string_view bytes);
std::vector<float> Float32Array(std::string_view bytes);

}  // namespace kevin
