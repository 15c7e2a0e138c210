// What a hostile text can make the compiler write, and read of a home in which the compiler lies.

#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "env/cpu/compile.h"
#include "env/cpu/library_cache.h"
#include "env/error.h"
#include "env/process/spawn.h"
#include "tests/catch.h"
#include "tests/env/cpu/cpu_fixture.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

const char* const kRelu = R"(extern "C" void launch(const float* x, float* out) {
  for (long i = 0; i < B * N; ++i) out[i] = x[i] > 0 ? x[i] : 0;
}
)";

std::string Filled(int64_t bytes) {
  return "asm(\".data\\n.fill " + std::to_string(bytes) + ", 1, 7\\n.text\");\n" + kRelu;
}

struct Bench {
  TemporaryFolder folder;
  Compiler compiler = FindCompiler();
  Problem problem = ListedProblem("level1/19");
  SizedProblem sized = AtSize(problem, "small");
  CompileOptions options;

  explicit Bench(bool namespaces = NamespacesAvailable()) {
    options.runner = BuiltPrograms() / "kevin-runner";
    options.cache_directory = folder.path() / "cache";
    options.namespaces = namespaces;
    options.limits.compile_timeout_s = 60;
  }
  Compiled Compile(const std::string& source) const { return CompileCpp(compiler, sized, source, options); }
};

bool Says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Does `work` in a process whose `folder` is a disk of `bytes`. Its result, or -1 where this machine refuses.
int OnSmallDisk(const fs::path& folder, int64_t bytes, const std::function<int()>& work) {
  const uid_t user = geteuid();
  const gid_t group = getegid();
  fs::create_directories(folder);
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) _exit(255);
    std::ofstream("/proc/self/setgroups") << "deny";
    std::ofstream("/proc/self/uid_map") << "0 " << user << " 1";
    std::ofstream("/proc/self/gid_map") << "0 " << group << " 1";
    if (mount("tmpfs", folder.c_str(), "tmpfs", 0, ("size=" + std::to_string(bytes)).c_str()) != 0)
      _exit(255);
    _exit(work());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) != 255 ? WEXITSTATUS(status) : -1;
}

// A folder of programs: a home with a compiler of the user's own.
class Home {
 public:
  Home() {
    before_ = std::getenv("HOME") ? std::getenv("HOME") : "";
    setenv("HOME", folder_.path().c_str(), 1);
    for (const char* name : {"secret", "bin/secret", "work/secret", "lib/secret"}) Put(name);
  }
  ~Home() {
    setenv("HOME", before_.c_str(), 1);
    unsetenv("KEVIN_CXX");
  }
  void Put(const std::string& name) const {
    fs::create_directories((path() / name).parent_path());
    std::ofstream(path() / name) << "int secret_was_read = 1;\n";
  }
  const fs::path& path() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
  std::string before_;
};

// Compiles with that compiler, and tries to read each secret in the home.
void CheckHomeIsHidden(const Home& home, const fs::path& compiler,
                       const std::vector<std::string>& secrets = {"secret", "bin/secret", "work/secret"}) {
  setenv("KEVIN_CXX", compiler.c_str(), 1);
  for (const bool namespaces : {true, false}) {
    if (namespaces && !NamespacesAvailable()) continue;
    const Bench bench(namespaces);
    INFO(compiler << (namespaces ? ", namespaces" : ", plain"));
    for (const std::string& shown : bench.compiler.needs) {
      INFO(shown);
      CHECK(shown != home.path());
      CHECK(!home.path().string().starts_with(shown + "/"));
    }
    const Compiled works = bench.Compile(kRelu);
    INFO(works.log);
    CHECK(!works.library.empty());
    for (const std::string& name : secrets) {
      const std::string path = home.path() / name;
      const Compiled embedded = bench.Compile("asm(\".incbin \\\"" + path + "\\\"\");\n" + kRelu);
      CHECK(embedded.library.empty());
      const Compiled included =
          bench.Compile("#include \"" + path + "\"\nint* p = &secret_was_read;\n" + std::string(kRelu));
      CHECK(included.library.empty());
      CHECK(!Says(included.log, "int secret_was_read"));
    }
  }
}

}  // namespace

TEST_CASE("a library beyond the limit does not compile, and the reason names the limit") {
  const Bench bench;
  for (const int64_t bytes : {int64_t{80} << 20, int64_t{300} << 20, kMaxLibraryBytes + 1}) {
    const Compiled compiled = bench.Compile(Filled(bytes));
    INFO(bytes << ": " << compiled.log);
    CHECK(compiled.library.empty());
    CHECK(!compiled.timed_out);
    CHECK(Says(OutcomeReason(CompileFailed{compiled.log}), "larger than the limit of 32 MB"));
  }
  const Compiled fits = bench.Compile(Filled(int64_t{20} << 20));
  CHECK(!fits.library.empty());
}

TEST_CASE("a full disk is no property of the text, whatever the text prints") {
  const Bench bench;
  const fs::path cache = bench.options.cache_directory;
  const auto fails_for_the_disk = [&](const std::string& text) {
    return [&bench, text] {
      try {
        return bench.Compile(text).library.empty() ? 1 : 2;
      } catch (const Error& error) {
        return error.code() == ExitCode::kBroken ? 0 : 3;
      }
    };
  };
  const int full = OnSmallDisk(cache, 4 << 20, fails_for_the_disk(Filled(int64_t{20} << 20)));
  if (full == -1) {
    std::printf("skipped: this user cannot mount\n");
    return;
  }
  CHECK(full == 0);
  CHECK(OnSmallDisk(cache, int64_t{200} << 20, fails_for_the_disk("#error No space left on device\n")) == 1);
}

TEST_CASE("the cache stays below its limit and keeps what was used last") {
  Bench bench;
  bench.options.cache_limit_bytes = int64_t{12} << 20;
  const auto source = [](int i) { return "// " + std::to_string(i) + "\n" + Filled(int64_t{1} << 20); };
  const Compiled in_use = bench.Compile(source(0));
  for (int i = 1; i < 24; ++i) {
    const Compiled compiled = bench.Compile(source(i));
    REQUIRE(!compiled.library.empty());
    CHECK(fs::exists(compiled.library));
    if (i % 3 == 0) CHECK(bench.Compile(source(1)).cached);  // used again and again
  }
  int64_t bytes = 0;
  for (const auto& file : fs::recursive_directory_iterator(bench.options.cache_directory)) {
    if (file.is_regular_file()) bytes += static_cast<int64_t>(file.file_size());
  }
  INFO(bytes);
  CHECK(bytes < (int64_t{14} << 20));
  CHECK(fs::exists(in_use.library));  // its user has it still
  CHECK(bench.Compile(source(1)).cached);
  CHECK(bench.Compile(source(23)).cached);
  CHECK(!bench.Compile(source(2)).cached);
}

TEST_CASE("an entry in use stays, and processes that share a cache do not disturb each other") {
  const TemporaryFolder folder;
  const auto work = [&](const std::string& name) {
    const fs::path path = folder.path() / ("compile-" + name) / "work";
    fs::create_directories(path);
    std::ofstream(path / "candidate.so") << std::string(100'000, 'x');
    std::ofstream(path / "log") << "warning";
    return path;
  };
  std::atomic<int> lost{0};
  std::vector<std::thread> users;
  for (int user = 0; user < 4; ++user) {
    users.emplace_back([&, user] {
      LibraryCache cache(folder.path(), 1'000'000);
      for (int i = 0; i < 60; ++i) {
        const std::string key = "key" + std::to_string(i % 20);
        std::optional<CachedLibrary> entry = cache.Find(key);
        if (!entry) entry = cache.Store(work(std::to_string(user) + "-" + std::to_string(i)), key);
        std::this_thread::yield();
        lost += !fs::exists(entry->library) || fs::file_size(entry->library) != 100'000;
      }
    });
  }
  for (std::thread& user : users) user.join();
  CHECK(lost == 0);
}

TEST_CASE("a compiler in the home does not open the home to the candidate") {
  const Home home;
  const fs::path real = fs::canonical("/usr/bin/g++");
  fs::create_symlink(real, home.path() / "bin/g++");
  CheckHomeIsHidden(home, home.path() / "bin/g++", {"secret", "bin/secret", "work/secret", "lib/secret"});
}

TEST_CASE("a compiler that is installed in the home itself works and opens its own folders only") {
  const Home home;
  const fs::path real = fs::canonical("/usr/bin/g++");
  fs::copy_file(real, home.path() / "bin/g++");
  // The driver looks beside itself first.
  setenv("KEVIN_CXX", "/usr/bin/g++", 1);
  fs::path libraries;
  for (const auto& entry : fs::directory_iterator("/usr/lib/gcc/x86_64-linux-gnu")) libraries = entry.path();
  fs::create_directories(home.path() / "lib/gcc/x86_64-linux-gnu");
  fs::create_directory_symlink(libraries, home.path() / "lib/gcc/x86_64-linux-gnu" / libraries.filename());
  CheckHomeIsHidden(home, home.path() / "bin/g++");
}

TEST_CASE("a compiler that names the home as one of its folders does not open it") {
  const Home home;
  const fs::path compiler = home.path() / "bin/cxx", library = home.path() / "lib2";
  fs::create_directory(library);
  std::ofstream(compiler) << "#!/bin/sh\n[ \"$1\" = -print-search-dirs ] || exec /usr/bin/g++ \"$@\"\n"
                          << "echo \"libraries: =" << home.path().string() << ":"
                          << home.path().parent_path().string() << ":" << library.string() << "\"\n";
  fs::permissions(compiler, fs::perms::owner_all);
  setenv("KEVIN_CXX", compiler.c_str(), 1);
  const std::vector<std::string> needs = FindCompiler().needs;
  const auto shows = [&](const fs::path& path) {
    return std::find(needs.begin(), needs.end(), path.string()) != needs.end();
  };
  CHECK(shows(library));
  CHECK(!shows(home.path()));
  CHECK(!shows(home.path().parent_path()));
}

TEST_CASE("a compiler of the system shows nothing more") {
  unsetenv("KEVIN_CXX");
  CHECK(FindCompiler().needs.empty());
}

}  // namespace kevin
