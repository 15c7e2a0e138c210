#include <algorithm>
#include <cstdlib>
#include <set>
#include <sstream>

#include "env/cpu/compile.h"
#include "env/error.h"
#include "env/process/find_program.h"
#include "env/process/spawn.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

// The wrapper of a compiler cache would write outside the sandbox.
std::vector<fs::path> FoldersWithoutCaches() {
  std::vector<fs::path> folders = FoldersOfPath();
  std::erase_if(folders,
                [](const fs::path& folder) { return folder.string().find("ccache") != std::string::npos; });
  return folders;
}

Ran Asked(const fs::path& compiler, const std::vector<std::string>& question) {
  SpawnOptions spawn;
  spawn.argv = {compiler.string()};
  spawn.argv.insert(spawn.argv.end(), question.begin(), question.end());
  spawn.environment = {"LC_ALL=C", "PATH=/usr/bin:/bin"};
  return RunToEnd(spawn, 20, 1 << 16);
}

// --- What a compiler of the user needs ---

bool LiesIn(const fs::path& path, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
}

// The sandbox shows these folders anyway (env/sandbox/sandbox.cc).
bool IsSystem(const fs::path& path) {
  for (const char* folder : {"/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin", "/opt/rh"}) {
    if (LiesIn(path, folder)) return true;
  }
  return false;
}

// Collects paths. Of a home, or of a folder that holds one, nothing is shown as a whole.
class Shown {
 public:
  explicit Shown(fs::path driver) : driver_(std::move(driver)) {
    std::error_code error;
    if (const char* home = std::getenv("HOME")) homes_ = {home, fs::weakly_canonical(home, error)};
  }

  // A driver or a program that it runs, and each link on the way to it.
  void AddProgram(fs::path path) {
    std::error_code error;
    for (int links = 0; links < 16 && path.is_absolute() && fs::exists(path, error); ++links) {
      Keep(path.lexically_normal());
      AddLibrariesBeside(path);
      if (!fs::is_symlink(fs::symlink_status(path, error))) break;
      const fs::path target = fs::read_symlink(path, error);
      path = (path.parent_path() / target).lexically_normal();
    }
    // Folders on the way may be links too.
    const fs::path real = fs::canonical(path, error);
    if (!error) Keep(real), AddLibrariesBeside(real);
  }

  void AddFolder(const fs::path& folder) {
    std::error_code error;
    const fs::path real = fs::canonical(folder, error);
    if (error || !folder.is_absolute() || !fs::is_directory(real, error)) return;
    fs::path usual = folder.lexically_normal();
    if (!usual.has_filename()) usual = usual.parent_path();  // "lib/"
    for (const fs::path& path : {usual, real}) {
      const bool holds_home =
          std::any_of(homes_.begin(), homes_.end(), [&](const fs::path& home) { return LiesIn(home, path); });
      if (!holds_home && path != "/" && path != driver_.parent_path()) Keep(path);
    }
  }

  std::vector<std::string> Paths() const { return {paths_.begin(), paths_.end()}; }

 private:
  void Keep(const fs::path& path) {
    if (!IsSystem(path)) paths_.insert(path.string());
  }
  // What its own loader looks for. The libraries of a home are not those of a link or a wrapper in its `bin`; a compiler that is
  // installed there names its folders.
  void AddLibrariesBeside(const fs::path& program) {
    const fs::path prefix = program.parent_path().parent_path();
    if (std::find(homes_.begin(), homes_.end(), prefix) != homes_.end()) return;
    for (const char* folder : {"lib", "lib64"}) AddFolder(prefix / folder);
  }

  fs::path driver_;
  std::vector<fs::path> homes_;
  std::set<std::string> paths_;
};

// "programs: =A:B" and "libraries: =A:B", and "install: A".
void AddSearchFolders(const std::string& answer, Shown* shown) {
  std::istringstream lines(answer);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    std::string list = line.substr(colon + 2);
    if (!list.empty() && list[0] == '=') list.erase(0, 1);
    std::istringstream folders(list);
    for (std::string folder; std::getline(folders, folder, ':');) shown->AddFolder(folder);
  }
}

// The list between "search starts here" and its end; the name of the driver behind a wrapper.
void AddIncludeFolders(const std::string& answer, Shown* shown) {
  std::istringstream lines(answer);
  bool is_listed = false;
  for (std::string line; std::getline(lines, line);) {
    constexpr std::string_view kDriver = "COLLECT_GCC=";
    if (line.rfind(kDriver, 0) == 0) shown->AddProgram(line.substr(kDriver.size()));
    if (line.find("search starts here:") != std::string::npos) {
      is_listed = true;
    } else if (line.rfind("End of search list", 0) == 0) {
      is_listed = false;
    } else if (is_listed && line.size() > 1 && line[0] == ' ') {
      shown->AddFolder(line.substr(1));
    }
  }
}

std::vector<std::string> NeedsOf(const fs::path& compiler) {
  std::error_code error;
  if (IsSystem(compiler) && IsSystem(fs::canonical(compiler, error)) && !error) return {};
  Shown shown(compiler);
  shown.AddProgram(compiler);
  AddSearchFolders(Asked(compiler, {"-print-search-dirs"}).output, &shown);
  AddIncludeFolders(Asked(compiler, {"-E", "-v", "-x", "c++", "/dev/null"}).output, &shown);
  for (const char* question : {"-print-prog-name=cc1plus", "-print-prog-name=collect2", "-print-prog-name=as",
                               "-print-prog-name=ld", "-print-sysroot", "-print-resource-dir"}) {
    const Ran ran = Asked(compiler, {question});
    const fs::path answer = ran.output.substr(0, ran.output.find('\n'));
    if (ran.status != 0) continue;
    if (fs::is_directory(answer, error)) {
      shown.AddFolder(answer);
    } else {
      shown.AddProgram(answer);
    }
  }
  return shown.Paths();
}

}  // namespace

Compiler FindCompiler() {
  const char* chosen = std::getenv("KEVIN_CXX");
  for (const std::string& name :
       chosen ? std::vector<std::string>{chosen} : std::vector<std::string>{"g++", "clang++"}) {
    const fs::path path = FindProgram(name, FoldersWithoutCaches());
    if (path.empty()) continue;
    const Ran ran = Asked(path, {"--version"});
    if (ran.status == 0 && !ran.timed_out)
      return {path, ran.output.substr(0, ran.output.find('\n')), NeedsOf(path)};
  }
  throw Error(
      ExitCode::kMachine,
      chosen ? std::string("compiler ") + chosen + ": not found or not usable" : "no C++ compiler found",
      "install one (apt-get install g++) or set KEVIN_CXX to its path");
}

}  // namespace kevin
