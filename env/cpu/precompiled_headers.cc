#include "env/cpu/precompiled_headers.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <map>
#include <mutex>
#include <string_view>

#include "env/problem/text.h"
#include "env/process/files.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

// All sets of them are 7, of 10 to 60 MB each.
constexpr std::array<std::string_view, 3> kHeavy = {"immintrin.h", "cmath", "algorithm"};
constexpr int64_t kMostMb = 256;
constexpr int kRequestsBefore = 1;
constexpr std::chrono::hours kKeptFor{24 * 30};  // those of a compiler that was replaced go
constexpr size_t kMostLog = 4096;
constexpr const char* kPrecompiledName = "headers.h.gch";

// The name in `#include <name>`, without anything behind it but a comment; empty: another line.
std::string_view IncludedBy(std::string_view line) {
  const auto take = [&](std::string_view word) {
    if (!line.starts_with(word)) return false;
    line = Trimmed(line.substr(word.size()));
    return true;
  };
  if (!take("#") || !take("include") || !line.starts_with("<")) return {};
  line.remove_prefix(1);
  const size_t end = line.find('>');
  if (end == std::string_view::npos) return {};
  const std::string_view behind = Trimmed(line.substr(end + 1));
  if (!behind.empty() && !(behind.starts_with("//") && !behind.ends_with("\\"))) return {};
  return line.substr(0, end);
}

std::string IdentityOf(const Compiler& compiler, const std::string& text) {
  std::string identity =
      compiler.path.string() + "\n" + compiler.version + "\n" + CpuModel() + CpuFeatures() + "\n";
  for (const std::string& flag : CompileFlags()) identity += flag + "\n";
  for (const std::string& flag : ReportFlags(compiler)) identity += flag + "\n";
  return identity + text;
}

void RemoveOld(const fs::path& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const fs::file_time_type made = fs::last_write_time(entry.path(), error);
    if (!error && made + kKeptFor < fs::file_time_type::clock::now()) fs::remove_all(entry.path(), error);
  }
}

// Whether the folder `kept` is there afterwards. Nobody sees half of it.
bool Make(const Compiler& compiler, const std::string& text, const CompileOptions& options,
          const fs::path& kept) {
  const WorkFolder temporary(kept.parent_path(), "make");
  RemoveOld(kept.parent_path());
  const fs::path work = temporary.path() / "work";
  fs::create_directory(work);
  std::ofstream(work / kHeadersName) << text;
  SpawnOptions spawn = ToolProcess(compiler, options, work, kMostMb);
  spawn.argv.push_back(compiler.path.string());
  for (const std::string& flag : CompileFlags()) {
    if (flag != "-x" && flag != "c++" && flag != "-shared") spawn.argv.push_back(flag);
  }
  for (const std::string& flag : ReportFlags(compiler)) spawn.argv.push_back(flag);
  spawn.argv.insert(spawn.argv.end(), {"-x", "c++-header", "-o", kPrecompiledName, kHeadersName});
  const Ran ran = RunToEnd(std::move(spawn), options.limits.compile_timeout_s, kMostLog, options.stop);
  if (ran.timed_out || ran.status != 0) return false;
  std::error_code error;
  fs::rename(work, kept, error);
  return fs::exists(kept / kPrecompiledName, error);
}

}  // namespace

std::vector<std::string> HeadersWorthPrecompiling(const std::string& source) {
  std::array<bool, kHeavy.size()> has{};
  bool is_comment = false;  // of several lines
  for (size_t at = 0; at < source.size();) {
    const size_t end = std::min(source.find('\n', at), source.size());
    const std::string_view line = Trimmed(std::string_view(source).substr(at, end - at));
    at = end + 1;
    if (is_comment || line.starts_with("/*")) {
      const size_t close = line.find("*/", is_comment ? 0 : 2);
      is_comment = close == std::string_view::npos;
      if (!is_comment && close + 2 != line.size()) break;
      continue;
    }
    if (line.empty() || (line.starts_with("//") && !line.ends_with("\\"))) continue;
    const std::string_view name = IncludedBy(line);
    if (name.empty()) break;
    for (size_t i = 0; i < kHeavy.size(); ++i) has[i] |= name == kHeavy[i];
  }
  std::vector<std::string> headers;
  for (size_t i = 0; i < kHeavy.size(); ++i) {
    if (has[i]) headers.emplace_back(kHeavy[i]);
  }
  return headers;
}

fs::path PrecompiledHeaders(const Compiler& compiler, const std::vector<std::string>& headers,
                            const CompileOptions& options) {
  if (headers.empty() || IsClang(compiler)) return {};
  std::string text;
  for (const std::string& header : headers) text += "#include <" + header + ">\n";
  const fs::path kept = options.cache_directory / "cpp-headers" / Sha256Hex(IdentityOf(compiler, text));
  std::error_code error;
  if (fs::exists(kept / kPrecompiledName, error)) return kept;
  static std::mutex mutex;
  static std::map<fs::path, int> requests;  // -1: not to be had, or being made
  {
    const std::lock_guard lock(mutex);
    int& before = requests[kept];
    if (before < 0 || before++ < kRequestsBefore) return {};
    before = -1;
  }
  return Make(compiler, text, options, kept) ? kept : fs::path();
}

}  // namespace kevin
