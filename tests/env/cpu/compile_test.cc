// The compiler reads hostile text: what it may see, how long it may take, what it says, what is remembered.

#include "env/cpu/compile.h"

#include <unistd.h>

#include <cstdlib>

#include "env/cpu/precompiled_headers.h"
#include "env/error.h"
#include "env/sandbox/sandbox.h"
#include "tests/catch.h"
#include "tests/env/cpu/cpu_fixture.h"
#include "tests/folders.h"

namespace kevin {
namespace {

const char* const kRelu = R"(extern "C" void launch(const float* x, float* out) {
  for (long i = 0; i < B * N; ++i) out[i] = x[i] > 0 ? x[i] : 0;
}
)";

// A cache of its own, and one problem to compile for.
struct Fixture {
  TemporaryFolder folder;
  Compiler compiler = FindCompiler();
  Problem problem = ListedProblem("level1/19");
  SizedProblem sized = AtSize(problem, "small");
  CompileOptions options;

  explicit Fixture(bool namespaces = NamespacesAvailable()) {
    options.runner = BuiltPrograms() / "kevin-runner";
    options.cache_directory = folder.path() / "cache";
    options.namespaces = namespaces;
    options.limits.compile_timeout_s = 60;
  }
  Compiled Compile(const std::string& source) const { return CompileCpp(compiler, sized, source, options); }
};

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a kernel compiles once and is then remembered") {
  const Fixture fixture;
  const Compiled first = fixture.Compile(kRelu);
  INFO(first.log);
  REQUIRE(!first.library.empty());
  CHECK(std::filesystem::exists(first.library));
  CHECK(!first.cached);
  const Compiled second = fixture.Compile(kRelu);
  CHECK(second.cached);
  CHECK(second.library == first.library);
  const Compiled other_size =
      CompileCpp(fixture.compiler, AtSize(fixture.problem, "full"), kRelu, fixture.options);
  CHECK(!other_size.cached);
}

TEST_CASE("an error is remembered, with the candidate's own line numbers") {
  const Fixture fixture;
  const std::string source =
      "// one\n// two\nextern \"C\" void launch(const float* x, float* out) { out[0] = y; }\n";
  const Compiled first = fixture.Compile(source);
  CHECK(first.library.empty());
  CHECK(Contains(first.log, "candidate.cpp:3:"));
  CHECK(Contains(first.log, "out[0] = y"));  // and shows its own line
  const Compiled second = fixture.Compile(source);
  CHECK(second.cached);
  CHECK(second.library.empty());
  CHECK(second.log == first.log);
}

TEST_CASE("a wrong signature is an error that shows the right one") {
  const Fixture fixture;
  const Compiled compiled =
      fixture.Compile("extern \"C\" void launch(float* x, float* out) { out[0] = x[0]; }\n");
  CHECK(compiled.library.empty());
  INFO(compiled.log);
  CHECK(Contains(compiled.log, "launch"));
  CHECK(Contains(compiled.log, "required-signature"));
  CHECK(Contains(compiled.log, "const float*"));
}

// What is loaded of a library: neither its line table nor the hash of the whole.
std::string LoadedPart(const std::filesystem::path& library, const TemporaryFolder& folder) {
  const std::string loaded = folder.path() / "loaded.so";
  const std::string command =
      "objcopy --strip-debug --remove-section=.note.gnu.build-id " + library.string() + " " + loaded;
  REQUIRE(std::system(command.c_str()) == 0);
  return TextOf(loaded);
}

TEST_CASE("precompiled headers change neither the code of a library nor an error") {
  const Fixture fixture;
  const std::filesystem::path made = fixture.options.cache_directory / "cpp-headers";
  const auto text = [](const std::string& name, const std::string& value) {
    return "// kernel " + name + R"(
#include <immintrin.h>
#include <cmath>
extern "C" void launch(const float* x, float* out) {
  for (long i = 0; i < B * N; ++i) out[i] = )" +
           value + ";\n}\n";
  };
  const std::string relu = "std::fmax(x[i], _mm_cvtss_f32(_mm_setzero_ps()))";
  const Compiled plain = fixture.Compile(text("first", relu));
  REQUIRE(!plain.library.empty());
  CHECK(!std::filesystem::exists(made));
  const std::string loaded = LoadedPart(plain.library, fixture.folder);
  for (const char* name : {"second", "third"}) {
    const Compiled again = fixture.Compile(text(name, relu));
    REQUIRE(!again.library.empty());
    CHECK((!again.cached && LoadedPart(again.library, fixture.folder) == loaded));
    CHECK(std::filesystem::exists(made) != IsClang(fixture.compiler));
  }
  // What its own headers do not declare stays undeclared, and no message names another file.
  for (const char* wrong : {"std::clamp(x[i], 0.f, 9.f)", "nothing(x[i])"}) {
    const Compiled failed = fixture.Compile(text("fourth", wrong));
    CHECK(failed.library.empty());
    CHECK(Contains(failed.log, "candidate.cpp:5:"));
    CHECK(!Contains(failed.log, kHeadersName));
  }
}

TEST_CASE("headers are found before anything but comments") {
  using Names = std::vector<std::string>;
  CHECK(HeadersWorthPrecompiling(
            "#include <cmath>\r\n\n/* several\nlines */\n  # include <immintrin.h> // why\n") ==
        Names{"immintrin.h", "cmath"});
  CHECK(HeadersWorthPrecompiling("// knob N: 1 2\n#include <cstdio>\n#include <algorithm>") ==
        Names{"algorithm"});
  for (const char* none : {"", "#define I 1\n#include <cmath>\n", "int x;\n#include <cmath>\n",
                           "#include \"cmath\"\n", "// \\\n#include <cmath>\n", "/*\n#include <cmath>\n*/\n",
                           "/* */ int x;\n#include <cmath>\n", "#include <cmath> int\n", "#include <cmath",
                           "#include <cmath> // \\\nint x;\n", "#if 0\n#include <cmath>\n"})
    CHECK(HeadersWorthPrecompiling(none).empty());
}

TEST_CASE("an unfinished text does not reach what is put around it") {
  const Fixture fixture;
  for (const std::string& tail :
       std::vector<std::string>{"/*", "#if 0", "R\"(", "#define launch other", "{", "\\"}) {
    const Compiled compiled = fixture.Compile(kRelu + tail);
    INFO(tail << ": " << compiled.log);
    CHECK((compiled.library.empty() || !compiled.log.empty() || tail == "#define launch other" ||
           tail == "\\"));
  }
}

TEST_CASE("private files cannot be read at compile time") {
  const TemporaryFolder home;
  const std::string canary = home.path() / "canary";
  std::ofstream(canary) << "int canary_was_read = 3;\n";
  setenv("KEVIN_TEST_SECRET", "int environment_was_read;", 1);
  for (const bool namespaces : {true, false}) {
    if (namespaces && !NamespacesAvailable()) continue;
    const Fixture fixture(namespaces);
    for (const std::string& path :
         {std::string("/etc/passwd"), std::string("/proc/self/environ"),
          "/proc/" + std::to_string(getpid()) + "/environ", std::string("/proc/self/cmdline"), canary,
          std::string(SourceFolder() / "env/error.h")}) {
      INFO(path << (namespaces ? ", namespaces" : ", plain"));
      const Compiled included = fixture.Compile("#include \"" + path + "\"\n" + kRelu);
      CHECK(included.library.empty());
      CHECK(!Contains(included.log, "root:"));
      CHECK(!Contains(included.log, "was_read"));
      CHECK(!included.timed_out);
      const Compiled embedded = fixture.Compile("asm(\".incbin \\\"" + path + "\\\"\");\n" + kRelu);
      CHECK(embedded.library.empty());
      CHECK(!Contains(embedded.log, "root:"));
      CHECK(!embedded.timed_out);
      const Compiled asked =
          fixture.Compile("#if __has_include(\"" + path + "\")\n#error it is there\n#endif\n" + kRelu);
      CHECK((!namespaces || !Contains(asked.log, "it is there")));  // Landlock hides contents, not names
    }
  }
}

TEST_CASE("the compiler does not read the user's standard input") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const std::string secret = "#error was read\n";
  REQUIRE(write(ends[1], secret.data(), secret.size()) == static_cast<ssize_t>(secret.size()));
  close(ends[1]);
  const int before = dup(STDIN_FILENO);
  dup2(ends[0], STDIN_FILENO);
  for (const bool namespaces : {true, false}) {
    if (namespaces && !NamespacesAvailable()) continue;
    const Compiled compiled = Fixture(namespaces).Compile(std::string("#include \"/dev/stdin\"\n") + kRelu);
    CHECK(!Contains(compiled.log, "was read"));
  }
  dup2(before, STDIN_FILENO);
}

TEST_CASE("a text that eats memory fails") {
  Fixture fixture;
  fixture.options.limits.compile_memory_mb = 160;
  fixture.options.limits.compile_timeout_s = 120;
  const Compiled compiled = fixture.Compile(
      "template <int D, long I> struct Tree { static constexpr long v = Tree<D - 1, 2 * I>::v + Tree<D - 1, "
      "2 * I + 1>::v; };\n"
      "template <long I> struct Tree<0, I> { static constexpr long v = I; };\n"
      "long all = Tree<40, 1>::v;\n" +
      std::string(kRelu));
  INFO(compiled.log);
  CHECK(compiled.library.empty());
  CHECK(!compiled.timed_out);
  CHECK(!compiled.log.empty());
}

TEST_CASE("a text that never ends is stopped, and not remembered") {
  Fixture fixture;
  fixture.options.limits.compile_timeout_s = 1;
  const std::string source =
      "template <int D, long I> struct Tree { static constexpr long v = Tree<D - 1, 2 * I>::v + Tree<D - 1, "
      "2 * I + 1>::v; };\n"
      "template <long I> struct Tree<0, I> { static constexpr long v = I; };\n"
      "long all = Tree<40, 1>::v;\n" +
      std::string(kRelu);
  for (int attempt = 0; attempt < 2; ++attempt) {
    const Compiled compiled = fixture.Compile(source);
    CHECK(compiled.timed_out);
    CHECK(!compiled.cached);
    CHECK(compiled.library.empty());
  }
}

TEST_CASE("a flood of messages is cut") {
  Fixture fixture;
  fixture.options.limits.max_log_bytes = 5000;
  std::string source;
  for (int i = 0; i < 20000; ++i) source += "#pragma message \"a line of no use at all\"\n";
  source += "#error the end\n";
  CHECK(fixture.Compile(source).log.size() <= 5000);
  CHECK(fixture.Compile("int " + std::string(300000, 'x') + " = y;\n").log.size() <= 5000);
}

TEST_CASE("messages hold nothing that a terminal would obey") {
  const Fixture fixture;
  const Compiled compiled = fixture.Compile("#error \"\033]0;owned\007\033[2J\"\n");
  CHECK(Contains(compiled.log, "owned"));
  CHECK(!Contains(compiled.log, "\033"));
  CHECK(!Contains(compiled.log, "\007"));
}

TEST_CASE("a text cannot load a compiler plug-in") {
  const Fixture fixture;
  for (const char* const line :
       {"#pragma GCC plugin \"candidate.so\"", "#pragma GCC optimize(\"-fplugin=/kevin-work/candidate.so\")",
        "__attribute__((optimize(\"-fplugin=/kevin-work/candidate.so\"))) void f();"}) {
    const Compiled compiled = fixture.Compile(std::string(line) + "\n" + kRelu);
    INFO(line << "\n" << compiled.log);
    CHECK(!Contains(compiled.log, "cannot load plugin"));
    CHECK(!Contains(compiled.log, "cannot open shared object"));
  }
}

TEST_CASE("a compiler that is not there is the machine's fault") {
  setenv("KEVIN_CXX", "/nonexistent/g++", 1);
  CHECK_THROWS_AS(FindCompiler(), Error);
  unsetenv("KEVIN_CXX");
}

}  // namespace kevin
