#include "policies/remote/response_cache.h"

#include <fmt/format.h>
#include <sha256.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <fstream>
#include <iterator>

#include "env/error.h"
#include "policies/remote/json.h"

namespace kevin::remote {
namespace {

namespace fs = std::filesystem;

}  // namespace

ResponseCache::ResponseCache(fs::path folder) : folder_(std::move(folder)) {
  if (folder_.empty()) return;
  std::error_code error;
  const bool made = fs::create_directories(folder_, error);
  if (made) fs::permissions(folder_, fs::perms::owner_all, error);
  if (!error && access(folder_.c_str(), W_OK | X_OK) == 0) return;
  throw Error(ExitCode::kBadRequest, fmt::format("{}: responses cannot be kept there", folder_.string()),
              "give a folder of your own with --response-cache");
}

fs::path ResponseCache::PathOf(const std::string& key) const {
  std::array<char, SHA256_DIGEST_STRING_LENGTH> hex{};
  SHA256Data(reinterpret_cast<const uint8_t*>(key.data()), key.size(), hex.data());
  const std::string name = hex.data();
  return folder_ / name.substr(0, 2) / name;
}

// The file is one line of JSON and then the body as it came.
std::optional<HttpResponse> ResponseCache::Find(const std::string& key) const {
  if (folder_.empty()) return std::nullopt;
  std::ifstream file(PathOf(key), std::ios::binary);
  std::string head;
  if (!file || !std::getline(file, head)) return std::nullopt;
  const auto json = ParseJson(head);
  HttpResponse response;
  response.body.assign(std::istreambuf_iterator<char>(file), {});
  const auto size = json ? IntegerAt(*json, "size") : std::nullopt;
  if (!size || static_cast<size_t>(*size) != response.body.size()) return std::nullopt;
  response.status = static_cast<int>(IntegerAt(*json, "status").value_or(200));
  response.headers["content-type"] = TextAt(*json, "content_type");
  return response;
}

void ResponseCache::Keep(const std::string& key, const HttpResponse& response) const {
  if (folder_.empty()) return;
  static std::atomic<int> count{0};
  const fs::path path = PathOf(key);
  const fs::path unfinished = fmt::format("{}.{}.{}", path.string(), getpid(), ++count);
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  const auto type = response.headers.find("content-type");
  const Json head = {{"status", response.status.value_or(200)},
                     {"content_type", type == response.headers.end() ? "" : ValidUtf8(type->second)},
                     {"size", response.body.size()}};
  std::ofstream file(unfinished, std::ios::binary);
  file << head.dump() << '\n' << response.body;
  file.close();
  if (file) fs::rename(unfinished, path, error);
  if (file && !error) return;
  fs::remove(unfinished, error);
  throw Error(ExitCode::kBroken, fmt::format("{}: a response cannot be kept", path.string()), "free space");
}

}  // namespace kevin::remote
