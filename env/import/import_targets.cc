#include "env/import/import_targets.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <utility>

#include "env/error.h"
#include "env/problem/problem.h"

namespace kevin {

namespace fs = std::filesystem;

namespace {

bool IsWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-'; }

// The number at the start of a name; a name without one sorts last.
int LeadingNumber(const std::string& name) {
  const bool begins = !name.empty() && std::isdigit(static_cast<unsigned char>(name[0])) != 0;
  return begins && name.find_first_not_of("0123456789") < 9 ? std::atoi(name.c_str()) : 1 << 30;
}

// "19_ReLU" -> "019_relu"
std::string FileStem(const std::string& stem) {
  std::string file;
  for (const char c : stem)
    file += IsWord(c) ? static_cast<char>(std::tolower(static_cast<unsigned char>(c))) : '_';
  const size_t digits = file.find_first_not_of("0123456789");
  if (digits == std::string::npos || file[digits] == '_') file.insert(0, digits < 3 ? 3 - digits : 0, '0');
  return file;
}

// "19_ReLU" -> "ReLU", "Gemm_Add_" -> "Gemm Add"
std::string PlainName(const std::string& stem) {
  std::string name = stem;
  const size_t digits = name.find_first_not_of("0123456789");
  if (digits != std::string::npos && digits > 0 && name[digits] == '_') name.erase(0, digits + 1);
  std::replace(name.begin(), name.end(), '_', ' ');
  while (!name.empty() && name.back() == ' ') name.pop_back();
  return name.empty() ? stem : name;
}

std::vector<fs::path> Sorted(const fs::path& folder, bool folders) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with('_') || name.starts_with('.')) continue;
    const bool wanted = folders ? entry.is_directory() && name.starts_with("level")
                                : entry.is_regular_file() && entry.path().extension() == ".py";
    if (wanted) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end(), [](const fs::path& a, const fs::path& b) {
    const std::string one = a.stem().string(), other = b.stem().string();
    return std::pair(LeadingNumber(one), one) < std::pair(LeadingNumber(other), other);
  });
  return found;
}

void AddFolder(const fs::path& folder, const std::string& suite, const std::string& level,
               std::vector<ImportTarget>* targets) {
  for (const fs::path& file : Sorted(folder, false)) {
    targets->push_back(MakeImportTarget(suite, level, file.stem().string()));
    targets->back().from = file;
  }
}

}  // namespace

void CheckSuiteName(const std::string& suite) {
  const bool is_word =
      !suite.empty() && suite.size() <= 64 && std::all_of(suite.begin(), suite.end(), IsWord);
  std::error_code none;
  const fs::path shipped = ProblemSet::DefaultDirectory();
  const bool taken =
      fs::exists(shipped / suite, none) || fs::exists(shipped / "suites" / (suite + ".txt"), none);
  if (is_word && !taken && !suite.starts_with("level") && suite[0] != '-') return;
  throw Error(
      ExitCode::kBadRequest,
      fmt::format("--suite {}: {}", suite,
                  is_word ? "Kevin's own problems have this name" : "letters, digits, - and _ make a name"),
      "choose another name, such as mine");
}

ImportTarget MakeImportTarget(const std::string& suite, const std::string& folder, const std::string& stem) {
  ImportTarget target;
  const fs::path relative = fs::path(suite) / folder / (FileStem(stem) + ".toml");
  target.id = ProblemIdOf(relative);
  target.name = PlainName(stem);
  target.to = ProblemSet::ImportedDirectory() / relative;
  return target;
}

std::vector<ImportTarget> TargetsOfTree(const fs::path& tree, const std::string& suite, int level) {
  std::vector<ImportTarget> targets;
  std::error_code none;
  const fs::path inner = tree / "KernelBench";
  for (const fs::path& folder : Sorted(fs::is_directory(inner, none) ? inner : tree, true)) {
    const std::string name = folder.filename().string();
    if (level == 0 || name == fmt::format("level{}", level)) AddFolder(folder, suite, name, &targets);
  }
  if (targets.empty() && level == 0) AddFolder(tree, suite, "", &targets);
  if (!targets.empty()) return targets;
  throw Error(ExitCode::kBadRequest,
              fmt::format("{}: no level{}/*.py in this folder", tree.string(),
                          level == 0 ? "*" : std::to_string(level)),
              "give a checkout of KernelBench, a folder with the same layout, or a folder of .py files");
}

}  // namespace kevin
