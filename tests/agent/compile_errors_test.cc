#include "agent/compile_errors.h"

#include <fmt/format.h>

#include "tests/catch.h"

namespace kevin {
namespace {

std::string Source(int lines) {
  std::string source;
  for (int line = 1; line <= lines; ++line) source += fmt::format("text {};\n", line);
  return source;
}

std::string Nvrtc(int line, const std::string& message) {
  return fmt::format("candidate.cu({}): error: {}\n    the line\n    ^\n\n", line, message);
}

std::string Gcc(int line, const std::string& message) {
  return fmt::format("candidate.cpp:{}:5: error: {}\n   {} |   the line\n      |     ^~~\n", line, message,
                     line);
}

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("many errors about one name do not hide a second cause: NVRTC") {
  std::string log;
  for (const int line : {3, 12, 40, 55, 55, 60}) log += Nvrtc(line, "identifier \"tile\" is undefined");
  log += Nvrtc(61, "no instance of function template \"load\" matches the argument list");
  log += "            argument types are: (float *, int)\n";
  log += "6 errors detected in the compilation of \"candidate.cu\".\n";
  CHECK(
      TrimmedErrors(log, Source(70)) ==
      "line 3: identifier \"tile\" is undefined\n"
      "     3 | text 3;\n"
      "  and at 5 more places: lines 12, 40, 55, 60\n"
      "line 61: no instance of function template \"load\" matches the argument list; argument types are: (float *, int)\n"
      "    61 | text 61;\n");
}

TEST_CASE("many errors about one name do not hide a second cause: g++") {
  std::string log = "candidate.cpp: In function 'void launch(const float*, float*)':\n";
  log += Gcc(3, "'tile' was not declared in this scope");
  log += Gcc(8, "'tile' was not declared in this scope; did you mean 'tiles'?");
  log += Gcc(9, "'tile' does not name a type");
  log += Gcc(20, "cannot convert 'float*' to 'int' in initialization");
  log += Gcc(30, "cannot convert 'float' to '__m256' in assignment");
  log += "candidate.cpp:2:17: warning: unused parameter 'x'\n";
  CHECK(TrimmedErrors(log, Source(40)) ==
        "line 3, column 5: 'tile' was not declared in this scope\n"
        "     3 | text 3;\n"
        "  and at 2 more places: lines 8, 9\n"
        "line 20, column 5: cannot convert 'float*' to 'int' in initialization\n"
        "    20 | text 20;\n"
        "line 30, column 5: cannot convert 'float' to '__m256' in assignment\n"
        "    30 | text 30;\n");
}

TEST_CASE("errors of one template with other names are one cause, each name with its line") {
  std::string log;
  for (int i = 0; i < 9; ++i) log += Nvrtc(10 + i, fmt::format("identifier \"name{}\" is undefined", i));
  log += Nvrtc(19, "identifier \"name3\" is undefined") + Nvrtc(40, "expected a \";\"");
  const std::string text = TrimmedErrors(log, Source(50));
  CHECK(Has(
      text,
      "line 10: identifier \"name0\" is undefined\n    10 | text 10;\n  the same of `name1` (line 11), "));
  CHECK(Has(text, "`name6` (line 16) and 2 more\n"));
  CHECK(Has(text, "line 40: expected a \";\"\n"));
  const std::string quotes =
      Gcc(1, "‘a’ was not declared in this scope") + Gcc(2, "‘b’ was not declared in this scope");
  CHECK(Has(TrimmedErrors(quotes, Source(3)), "  the same of `b` (line 2)\n"));
}

TEST_CASE("what follows an error on its own line comes after causes on other lines") {
  const std::string log = Nvrtc(5, "name followed by \"::\" must be a class or namespace name") +
                          Nvrtc(5, "expected a \";\"") + Nvrtc(9, "this declaration has no storage class");
  CHECK(TrimmedErrors(log, Source(9)) ==
        "line 5: name followed by \"::\" must be a class or namespace name\n"
        "     5 | text 5;\n"
        "line 9: this declaration has no storage class\n"
        "     9 | text 9;\n"
        "line 5: expected a \";\"\n");
}

TEST_CASE("a line of a header is not taken for one of the candidate") {
  const std::string broken =
      "In file included from candidate.cpp:4:\n/usr/lib/gcc/x/12/include/omp.h:51:3: error: 'omp_lock_t' does not name a type\n"
      "   51 | } omp_lock_t;\n      |   ^~~~\n";
  CHECK(TrimmedErrors(broken + Gcc(3, "'The' does not name a type"), Source(60)) ==
        "line 3, column 5: 'The' does not name a type\n     3 | text 3;\n"
        "in omp.h, line 51: 'omp_lock_t' does not name a type\n");
  // What led there: g++ says it before the error, clang++ behind it.
  const std::string gcc =
      "/usr/include/c++/12/bits/stl_algo.h: In instantiation of 'void std::sort(_It, _It)':\n"
      "/usr/include/c++/12/bits/stl_algo.h:4820:18:   required from 'f'\n"
      "candidate.cpp:9:12:   required from here\n"
      "/usr/include/c++/12/bits/stl_algo.h:20:22: error: no match for 'operator-'\n";
  const std::string clang =
      "/usr/include/c++/12/bits/stl_algo.h:20:22: error: no match for 'operator-'\n"
      "candidate.cpp:9:12: note: in instantiation of function template specialization 'std::sort<A>' requested here\n";
  for (const std::string& log : {gcc, clang}) {
    CHECK(TrimmedErrors(log, Source(40)) ==
          "line 9: in stl_algo.h, line 20: no match for 'operator-'\n     9 | text 9;\n");
    CHECK(TrimmedErrors(log + Gcc(3, "an error"), Source(40)).find("line 3, column 5: an error\n") !=
          std::string::npos);
  }
  CHECK(TrimmedErrors("cuda_fp16.h(7): error: identifier \"x\" is undefined\n", Source(9)) ==
        "in cuda_fp16.h, line 7: identifier \"x\" is undefined\n");
}

TEST_CASE("causes, messages and places are bounded") {
  std::string log;
  for (int i = 0; i < 300; ++i) log += Gcc(i + 1, fmt::format("cause {} {}", i, std::string(2000, 'x')));
  const std::string text = TrimmedErrors(log, Source(300));
  CHECK(text.size() < 5 * 400);
  CHECK(text.ends_with("(295 more errors of other kinds)\n"));
  log.clear();
  for (int i = 0; i < 300; ++i) log += Gcc(i + 1, "'x' was not declared in this scope");
  CHECK(TrimmedErrors(log, Source(300))
            .ends_with("and at 299 more places: lines 2, 3, 4, 5, 6, 7, 8, 9, ...\n"));
}

TEST_CASE("errors of linkers and of ptxas have their causes too") {
  const std::string linker =
      "/usr/bin/ld: a.o: in function `launch':\na.cpp:(.text+0x1): undefined reference to `helper()'\n"
      "a.cpp:(.text+0x9): undefined reference to `helper()'\ncollect2: error: ld returned 1 exit status\n";
  CHECK(TrimmedErrors(linker, "") == "undefined reference to `helper()'\n  and at 1 more place\n");
  const std::string ptxas =
      "ptxas error   : Entry function '_Z1fPf' uses too much shared data (0x20000 bytes, 0xc000 max)\n"
      "ptxas application ptx input, line 12; error   : Unknown symbol 'abc'\n"
      "ptxas fatal   : Ptx assembly aborted due to errors\n";
  CHECK(TrimmedErrors(ptxas, Source(20)) ==
        "ptxas: Entry function '_Z1fPf' uses too much shared data (0x20000 bytes, 0xc000 max)\n"
        "line 12: ptxas: Unknown symbol 'abc'\n");
  CHECK(TrimmedErrors("the compiler was killed\n", "") == "the compiler was killed\n");
}

}  // namespace kevin
