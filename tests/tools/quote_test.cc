// Text in generated files: what it stands for survives, and nothing of it becomes code.

#include "tools/export/quote.h"

#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>

#include "agent/text.h"
#include "tests/catch.h"
#include "tests/tools/command_line.h"
#include "tests/tools/hostile_texts.h"
#include "tests/trajectories/sample_records.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

int Shell(const std::string& command) {
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void Write(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

bool HasPython() { return Shell("command -v python3 >/dev/null") == 0; }

std::string HexOf(const std::string& bytes) {
  std::string hex;
  for (const unsigned char c : bytes) hex += fmt::format("{:02x}", c);
  return hex;
}

TEST_CASE("quote: Python literals mean the text, whatever is in it") {
  if (!HasPython()) {
    WARN("no python3 on this machine");
    return;
  }
  TemporaryFolder folder;
  std::string program = "values = []\n";
  const std::vector<std::string> texts = HostileTexts();
  for (const std::string& text : texts) {
    program += "values.append(" + PythonString(text) + ")\n";
    program += "values.append(" + PythonText(text) + ")\n";
  }
  program += "open('values', 'w').write('\\n'.join(v.encode('utf-8').hex() for v in values) + '\\n')\n";
  Write(folder / "program.py", program);
  REQUIRE(Shell("cd '" + folder.path().string() + "' && python3 program.py") == 0);
  CHECK_FALSE(fs::exists(folder / "canary"));
  std::istringstream values(Bytes(folder / "values"));
  std::string line;
  for (const std::string& text : texts) {
    for (int form = 0; form < 2; ++form) {
      REQUIRE(std::getline(values, line));
      INFO(PythonString(text) << " form " << form);
      CHECK(line == HexOf(text));
    }
  }
}

TEST_CASE("quote: harmless text stays readable") {
  CHECK(PythonString("level1/19 (ReLU) \xc3\xa4") == "\"level1/19 (ReLU) \xc3\xa4\"");
  CHECK(PythonText("def f(x):\n    return x\n") == "r'''def f(x):\n    return x\n'''");
  CHECK(PythonText("a'''b\nc") == "(\n    \"a'''b\\n\"\n    \"c\"\n)");
  CHECK(PythonText("") == "\"\"");
  CHECK(CppString("run(Tensor x) -> Tensor") == "\"run(Tensor x) -> Tensor\"");
  CHECK(PythonString("\xff") == "\"\xef\xbf\xbd\"");
  CHECK(CppComments({"a", "b"}) == "// a\n// b\n");
  CHECK(PythonComments({"a"}) == "# a\n");
  CHECK(MarkdownLines({"a\nb"}) == "    a b\n");
}

TEST_CASE("quote: a Python comment stays one, in the first lines of a file too") {
  if (!HasPython()) {
    WARN("no python3 on this machine");
    return;
  }
  TemporaryFolder folder;
  int number = 0;
  for (const std::string& text : HostileTexts()) {
    Write(folder / fmt::format("program{}.py", number++),
          PythonComments({text}) + PythonComments({text, "x"}) + "ok = 1\n");
  }
  Write(folder / "all.py", fmt::format(R"(
import importlib, os
for number in range({}):
    module = importlib.import_module(f"program{{number}}")
    names = [name for name in dir(module) if not name.startswith("__")]
    assert names == ["ok"] and not os.path.exists("canary"), (number, names)
)",
                                       number));
  CHECK(Shell("cd '" + folder.path().string() + "' && python3 all.py") == 0);
  CHECK(number > 100);
}

TEST_CASE("quote: C++ literals and comments, also where trigraphs are on") {
  TemporaryFolder folder;
  std::string program = "#include <cstdio>\n";
  const std::vector<std::string> texts = HostileTexts();
  int line = 0;
  for (const std::string& text : texts) {
    program += CppComments({text});
    program += fmt::format("constexpr int after{} = {};\n", ++line, line);
  }
  program += "int main() {\n";
  for (size_t i = 0; i < texts.size(); ++i) {
    program += "  { const char text[] = " + CppString(texts[i]) + ";\n";
    program += fmt::format(
        "    for (unsigned i = 0; i + 1 < sizeof text; ++i) std::printf(\"%02x\", (unsigned char)text[i]);\n"
        "    std::puts(after{} ? \"\" : \"?\"); }}\n",
        i + 1);
  }
  Write(folder / "program.cpp", program + "}\n");
  const std::string at = "'" + folder.path().string() + "/";
  REQUIRE(Shell("g++ -std=c++11 -trigraphs -w -o " + at + "program' " + at + "program.cpp' && " + at +
                "program' > " + at + "values'") == 0);
  std::istringstream values(Bytes(folder / "values"));
  std::string value;
  for (const std::string& text : texts) {
    REQUIRE(std::getline(values, value));
    INFO(CppString(text));
    CHECK(value == HexOf(text));
  }
}

TEST_CASE("quote: file names stay in their folder, identifiers are such") {
  for (const std::string& text : HostileTexts()) {
    const std::string name = FileName(text), identifier = Identifier("kevin_", text);
    INFO(PythonString(text));
    CHECK(name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") ==
          std::string::npos);
    CHECK((!name.empty() && name[0] != '.' && name[0] != '-' && name.size() <= 120));
    CHECK(identifier.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") ==
          std::string::npos);
    CHECK((identifier.starts_with("kevin_") && identifier.size() <= 120));
  }
  CHECK(FileName("01K9J4-1") == "01K9J4-1");
  CHECK(FileName("../../etc/passwd") == "_._.._etc_passwd");
  CHECK(Identifier("kevin_", "level1/19") == "kevin_level1_19");
}

}  // namespace
}  // namespace kevin
