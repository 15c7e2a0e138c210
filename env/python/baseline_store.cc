#include "env/python/baseline_store.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <tuple>

#include "env/error.h"
#include "env/problem/text.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr size_t kDigits = 16;  // of a hash in a file name

auto Parts(const BaselineKey& key) {
  return std::tie(key.problem_hash, key.size, key.tf32, key.device_model, key.driver, key.precision,
                  key.mode);
}

std::string FileName(const Baseline& baseline) {
  const BaselineKey& key = baseline.key;
  const std::string rest = key.size + '\n' + (key.tf32 ? "tf32" : "") + '\n' + key.device_model + '\n' +
                           key.driver + '\n' + baseline.torch_version +
                           (key.precision == "fp32" ? "" : '\n' + key.precision) +
                           (key.mode == "default" ? "" : '\n' + key.mode);
  return key.problem_hash.substr(0, kDigits) + "-" + Sha256Hex(rest).substr(0, kDigits) + ".json";
}

ordered_json ToJson(const Baseline& b) {
  return {{"problem", b.problem},         {"problem_hash", b.key.problem_hash},
          {"size", b.key.size},           {"tf32", b.key.tf32},
          {"precision", b.key.precision}, {"mode", b.key.mode},
          {"device", b.key.device_model}, {"driver", b.key.driver},
          {"torch", b.torch_version},     {"measured_at", b.measured_at},
          {"failure", b.failure},         {"eager_us", b.eager_us},
          {"compiled_us", b.compiled_us}, {"compile_s", b.compile_s},
          {"max_error", b.max_error},     {"pairs", b.pairs}};
}

std::optional<Baseline> FromFile(const fs::path& path) {
  std::ifstream file(path);
  try {
    const auto json = ordered_json::parse(file);
    Baseline b;
    b.key = {json.at("problem_hash"),
             json.at("size"),
             json.at("tf32"),
             json.at("device"),
             json.at("driver"),
             json.value("precision", "fp32"),
             json.value("mode", "default")};
    b.problem = json.at("problem");
    b.torch_version = json.at("torch");
    b.measured_at = json.at("measured_at");
    b.failure = json.at("failure");
    b.eager_us = json.at("eager_us");
    b.compiled_us = json.at("compiled_us");
    b.compile_s = json.at("compile_s");
    b.max_error = json.at("max_error");
    b.pairs = json.at("pairs");
    if (b.failure.empty() && !(b.eager_us > 0 && b.compiled_us >= 0)) return std::nullopt;
    return b;
  } catch (const ordered_json::exception&) {
    return std::nullopt;
  }
}

}  // namespace

BaselineStore::BaselineStore(const fs::path& cache_directory) : folder_(cache_directory / "baselines") {}

std::optional<Baseline> BaselineStore::Find(const BaselineKey& key, const std::string& torch_version) const {
  std::optional<Baseline> found;
  for (Baseline& baseline : OfProblem(key.problem_hash)) {
    if (Parts(baseline.key) != Parts(key)) continue;
    if (torch_version.empty() || baseline.torch_version == torch_version) found = std::move(baseline);
  }
  return found;
}

std::vector<Baseline> BaselineStore::OfProblem(const std::string& problem_hash) const {
  std::vector<Baseline> found;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, none)) {
    if (!entry.path().filename().string().starts_with(problem_hash.substr(0, kDigits) + "-")) continue;
    std::optional<Baseline> baseline = FromFile(entry.path());
    if (baseline && baseline->key.problem_hash == problem_hash) found.push_back(std::move(*baseline));
  }
  std::sort(found.begin(), found.end(), [](const Baseline& a, const Baseline& b) {
    return std::tie(a.measured_at, a.key.size, a.torch_version) <
           std::tie(b.measured_at, b.key.size, b.torch_version);
  });
  return found;
}

void BaselineStore::Store(const Baseline& baseline) const {
  std::error_code error;
  fs::create_directories(folder_, error);
  std::string partial = (folder_ / "new-XXXXXX").string();
  errno = 0;
  const int fd = mkstemp(partial.data());
  bool ok = fd >= 0;
  if (ok) {
    std::ofstream out(partial);
    out << ToJson(baseline).dump(2, ' ', false, ordered_json::error_handler_t::replace) << '\n';
    ok = static_cast<bool>(out.flush());
    close(fd);
  }
  if (ok && std::rename(partial.c_str(), (folder_ / FileName(baseline)).c_str()) == 0) return;
  const std::string why = std::strerror(errno);
  fs::remove(partial, error);
  throw Error(ExitCode::kBroken, "cannot write to " + folder_.string() + ": " + why,
              "free some disk space, or point XDG_CACHE_HOME elsewhere");
}

}  // namespace kevin
