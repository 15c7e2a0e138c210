#include "policies/local/serve/api_keys.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "env/error.h"

namespace kevin::local {
namespace fs = std::filesystem;
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;
constexpr size_t kShortKeyBytes = 16;
constexpr const char* kHowToMake =
    "write a key a line, each of `openssl rand -hex 32`, and chmod 600 the file";

[[noreturn]] void ThrowFile(const fs::path& path, const std::string& why) {
  throw Error(ExitCode::kBadRequest, fmt::format("--api-keys {}: {}", path.string(), why), kHowToMake);
}

// The text of a regular file, and its mode.
std::string ReadKeys(const fs::path& path, mode_t* mode) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) ThrowFile(path, std::strerror(errno));
  struct stat info {};
  const bool is_regular = fstat(file, &info) == 0 && S_ISREG(info.st_mode);
  std::string text;
  std::array<char, 4096> buffer{};
  ssize_t length = 0;
  while (is_regular && text.size() <= kMaxFileBytes &&
         ((length = read(file, buffer.data(), buffer.size())) > 0 || (length < 0 && errno == EINTR))) {
    if (length > 0) text.append(buffer.data(), static_cast<size_t>(length));
  }
  close(file);
  if (!is_regular) ThrowFile(path, "is not a regular file");
  if (length < 0) ThrowFile(path, std::strerror(errno));
  if (text.size() > kMaxFileBytes) ThrowFile(path, fmt::format("is larger than {} bytes", kMaxFileBytes));
  *mode = info.st_mode;
  return text;
}

std::string Trimmed(const std::string& line) {
  constexpr const char* kSpace = " \t\r";
  const size_t first = line.find_first_not_of(kSpace);
  if (first == std::string::npos) return "";
  return line.substr(first, line.find_last_not_of(kSpace) - first + 1);
}

// Looks at every byte of `given`, wherever they differ.
bool AreEqual(std::string_view given, std::string_view key) {
  unsigned difference = given.size() == key.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i)
    difference |= static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(key[i % key.size()]);
  return difference == 0;
}

}  // namespace

ApiKeys::ApiKeys(const fs::path& file) {
  mode_t mode = 0;
  const std::string text = ReadKeys(file, &mode);
  for (size_t start = 0, number = 1; start < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', start), text.size());
    const std::string key = Trimmed(text.substr(start, end - start));
    start = end + 1;
    if (key.empty() || key[0] == '#') continue;
    if (!std::all_of(key.begin(), key.end(), [](char c) { return c > ' ' && c < 127; }))
      ThrowFile(file, fmt::format("line {} has a space or a character that is no printable ASCII", number));
    if (key.size() < kShortKeyBytes) {
      warnings_.push_back(fmt::format("{}: the key in line {} is shorter than {} characters", file.string(),
                                      number, kShortKeyBytes));
    }
    keys_.push_back(key);
  }
  if (keys_.empty()) ThrowFile(file, "has no key");
  if ((mode & 077) != 0)
    warnings_.push_back(
        fmt::format("{}: other users can reach the keys; chmod 600 makes them private", file.string()));
}

bool ApiKeys::Accept(std::string_view authorization) const {
  constexpr std::string_view kScheme = "Bearer ";
  if (authorization.size() <= kScheme.size() ||
      strncasecmp(authorization.data(), kScheme.data(), kScheme.size()) != 0)
    return false;
  const std::string_view given = authorization.substr(kScheme.size());
  bool is_known = false;
  for (const std::string& key : keys_) is_known |= AreEqual(given, key);
  return is_known;
}

}  // namespace kevin::local
