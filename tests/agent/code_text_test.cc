#include "agent/code_text.h"

#include <chrono>

#include "tests/catch.h"

namespace kevin {
namespace {

std::vector<std::string> Names(std::string_view code) {
  std::vector<std::string> names;
  for (const FunctionText& function : FunctionsIn(code)) names.push_back(function.name);
  return names;
}

}  // namespace

TEST_CASE("masked code keeps its length and its lines") {
  const std::string code =
      "int a = 1'000; // {\nconst char* s = \"}\\\"\"; /* ( \n */ char c = '\\'';\nauto r = R\"x(\n```\n)x\";\n";
  const MaskedCode masked = Mask(code);
  CHECK(masked.text.size() == code.size());
  CHECK(std::count(masked.text.begin(), masked.text.end(), '\n') ==
        std::count(code.begin(), code.end(), '\n'));
  CHECK_FALSE(masked.ends_inside);
  CHECK(masked.text.find_first_of("{}(\"`\\") == std::string::npos);
  CHECK(masked.text.find("1'000") != std::string::npos);
  for (const char* open : {"int a; /* (", "auto r = R\"(", "auto r = R\"x()\""})
    CHECK(Mask(open).ends_inside);
  CHECK_FALSE(Mask("int a; // (").ends_inside);
}

TEST_CASE("a backslash at the end of a line continues a comment or a literal") {
  CHECK(Mask("// a \\\n{ b\n{").text == "      \n   \n{");
  CHECK(Mask("// a \\\n").ends_inside);
  CHECK_FALSE(Mask("// a\n").ends_inside);
  CHECK(Mask("const char* s = \"a\\\n{\"; {").text.ends_with("; {"));
  CHECK(Mask("const char* s = \"a\\\n").ends_inside);
  for (const char* open : {"int a; // (", "const char* s = \"a", "char c = 'a"})
    CHECK(Mask(open).ends_in_line);
  for (const char* closed : {"int a; // (\n", "const char* s = \"a\";", "int a;", "/* a"})
    CHECK_FALSE(Mask(closed).ends_in_line);
}

TEST_CASE("masked Python: comments, strings, strings over lines") {
  const std::string code =
      "a = 1  # it's {\ns = 'it\\'s ('\nt = \"\"\"\n```\n{ ' # \"\"\"\nu = '''(\n'''\nb = 7 // 2\n";
  const MaskedCode masked = MaskPython(code);
  CHECK(masked.text.size() == code.size());
  CHECK(std::count(masked.text.begin(), masked.text.end(), '\n') ==
        std::count(code.begin(), code.end(), '\n'));
  CHECK(masked.text.find_first_of("{(`'\"#") == std::string::npos);
  CHECK(masked.text.find("b = 7 // 2") != std::string::npos);
  CHECK((!masked.ends_inside && !masked.ends_in_line));
  CHECK(MaskPython("s = \"\"\"/* it's\n").ends_inside);
  CHECK(MaskPython("s = 1  # a").ends_in_line);
  CHECK_FALSE(MaskPython("s = 1  # a\n").ends_in_line);
  CHECK(IsCompletePython("s = '('  # [\n"));
  for (const char* open : {"f(1,\n", "s = '''\n", "", "# a comment\n"}) CHECK_FALSE(IsCompletePython(open));
}

TEST_CASE("the functions of a file") {
  const std::string code =
      "#include <x>\n#define F(a) { \\\n  a }\nnamespace {\n// A comment.\nstatic inline float f(float (*g)(int), int x[3]) "
      "noexcept {\n  if (x) { return 1; }\n  return g(0);\n}\nstruct S { int a() { return 1; } };\n}\n"
      "constexpr int kTile[] = {1, 2};\ntemplate <int N>\n__global__ void __launch_bounds__(256) k(float* y) { y[0] = N; }\n"
      "extern \"C\" {\nvoid launch(const float* x, float* out) { f(0, 0); }\n}\n";
  CHECK(Names(code) == std::vector<std::string>{"f", "k", "launch"});
  const FunctionText kernel = FunctionsIn(code)[1];
  CHECK(code.substr(kernel.begin, 17) == "template <int N>\n");
  CHECK(code.substr(kernel.end - 13, 13) == "{ y[0] = N; }");
  CHECK(Names("launch(float* y) { f<<<1, 1>>>(y); }") == std::vector<std::string>{"launch"});
  CHECK(Names("launch(x);").empty());
  CHECK(Names("void launch(float* y) {").empty());  // it never ends
}

TEST_CASE("complete code") {
  CHECK(IsCompleteCode("void f() {}\n"));
  CHECK_FALSE(IsCompleteCode("void f() {}\nstatic void he"));
  CHECK_FALSE(IsCompleteCode("void f() { (} )"));
  CHECK_FALSE(IsCompleteCode(""));
}

}  // namespace kevin
