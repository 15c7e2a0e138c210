// The filter for foreign text on its way to a terminal, and the names that a problem file may use.

#include "env/printable.h"

#include <functional>

#include "env/error.h"
#include "env/problem/problem.h"
#include "tests/catch.h"

namespace kevin {
namespace {

TEST_CASE("printable: whatever acts on a terminal is shown instead") {
  struct Case {
    const char *text, *shown;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"plain text, \xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80",
            "plain text, \xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80"},
           {"tab\tand\nlines\r\n", "tab\tand\nlines\n"},
           {"\x1b[2J\x1b[1;1H", "\\x1b[2J\\x1b[1;1H"},                  // CSI: clears the screen
           {"\x1b]0;title\x07", "\\x1b]0;title\\x07"},                  // OSC: renames the window
           {"\x1b]52;c;cm0gLXJm\x1b\\", "\\x1b]52;c;cm0gLXJm\\x1b\\"},  // OSC 52: fills the clipboard
           {"\x1bP$q\x1b\\", "\\x1bP$q\\x1b\\"},                        // DCS
           {"\xc2\x9b"
            "2J",
            "\\u009b2J"},  // C1's CSI
           {"\x9b"
            "2J",
            "\\x9b2J"},  // the same as a lone byte
           {"over\rwritten\b\x7f\v\f", "over\\x0dwritten\\x08\\x7f\\x0b\\x0c"},
           {"a\xe2\x80\xae"
            "b\xe2\x81\xa6"
            "c",
            "a\\u202eb\\u2066c"},  // bidi override, isolate
           {"\xe2\x80\xa8\xef\xbb\xbf\xe2\x80\x8b", "\\u2028\\ufeff\\u200b"},
           {"\xf3\xa0\x81\x81", "\\U000e0041"},             // a tag, which nobody sees
           {"\xff\xc3(\xe2\x82", "\\xff\\xc3(\\xe2\\x82"},  // no UTF-8
           {"\xc0\x9b\xed\xa0\x80\xf4\x90\x80\x80", "\\xc0\\x9b\\xed\\xa0\\x80\\xf4\\x90\\x80\\x80"},
       }) {
    INFO(c.shown);
    CHECK(Printable(c.text) == c.shown);
    CHECK(Printable(Printable(c.text)) == Printable(c.text));
  }
  CHECK(Printable(std::string_view("a\0b", 3)) == "a\\x00b");
  CHECK(PrintableLine("a\r\nb\tc\x1b") == "a b c\\x1b");
}

TEST_CASE("printable: no text leaves a control in it, whatever its bytes") {
  uint32_t state = 1;
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int i = 0; i < 40; ++i) {
      state = state * 1664525 + 1013904223;
      text += static_cast<char>(state >> 24);
    }
    const std::string shown = Printable(text);
    for (size_t at = 0; at < shown.size();) {
      const Utf8Character c = Utf8At(shown, at);
      const bool is_safe = c.is_valid && (!IsHidden(c.code) || c.code == '\n' || c.code == '\t');
      if (!is_safe) CHECK(is_safe);
      at += c.bytes;
    }
  }
}

TEST_CASE("printable: JSON keeps its value") {
  CHECK(PrintableJson("{\"a\": \"\xc2\x9b\xe2\x80\xae\xf3\xa0\x81\x81\xc3\xa4\"}") ==
        "{\"a\": \"\\u009b\\u202e\\udb40\\udc41\xc3\xa4\"}");
}

// The text of a problem with other names.
std::string WithNames(const std::string& id, const std::string& name, const std::string& input,
                      const std::string& symbol = "N", const std::string& size = "small") {
  return "id = " + id + "\nname = " + name + "\nfamilies = [\"elementwise\"]\nreference = '''\ndef forward(" +
         input + "):\n    return torch.relu(" + input + ")\n'''\n[sizes." + size + "]\n" + symbol +
         " = 4\n[[inputs]]\nname = \"" + input + "\"\nshape = [\"" + symbol +
         "\"]\n[[outputs]]\nname = \"out\"\nshape = [\"" + symbol +
         "\"]\n[cost]\nflops = 1\nbytes = 1\nmin_flops = 0\nmin_bytes = 0\n";
}

std::string Complaint(const std::string& text) {
  try {
    ParseProblem(text, "my.toml");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kBadRequest);
    return error.what();
  }
  return "";
}

TEST_CASE("problem files: ids, titles and names of sizes are such, and nothing else") {
  const auto complaint = [](const std::string& id, const std::string& name) {
    return Complaint(WithNames("\"" + id + "\"", "\"" + name + "\"", "x"));
  };
  CHECK(complaint("mine/re-lu_2.0+a", "ReLU: \xc3\xa4, \\\"quoted\\\" (fast)").empty());
  for (const char* id : {"../relu", "a/../../b", "/etc/passwd", "a//b", "a/", "a b", "a\\nb", "a'b", "a\\\"b",
                         "a;b", "$(id)", ".hidden", "-rf", "a\\u001bb", "\\u202ea", "\xc3\xa4"}) {
    INFO(id);
    CHECK(complaint(id, "ReLU").find("my.toml:1: id: '") == 0);
    CHECK(complaint(id, "ReLU").find("is not an id (letters, digits, _ - . and +, in parts") !=
          std::string::npos);
  }
  CHECK(complaint(std::string(201, 'a'), "ReLU").find("is longer than 200 bytes") != std::string::npos);
  for (const char* name : {"a\\nb", "a\\u001b[2J", "a\\u009bb", "a\\u202eb", "a\\tb"}) {
    INFO(name);
    CHECK(complaint("mine/a", name).find("my.toml:2: name: '") == 0);
    CHECK(complaint("mine/a", name).find("has a hidden character") != std::string::npos);
  }
  CHECK(complaint("mine/a", std::string(201, 'a')).find("is longer than 200 bytes") != std::string::npos);
  CHECK(Complaint(WithNames("\"a\"", "\"a\"", "x", "N", "\"../small\"")).find("is not the name of a size") !=
        std::string::npos);
  CHECK(Complaint(WithNames("\"a\"", "\"a\"", "x", "N", "\"a\\u001b\"")).find("is not the name of a size") !=
        std::string::npos);
}

TEST_CASE("problem files: names in code are identifiers and no words of C++ or Python") {
  CHECK(Complaint(WithNames("\"a\"", "\"a\"", "x_1")).empty());
  for (const char* name : {"self", "None", "del", "await", "nullptr", "typename", "co_await", "__file__",
                           "__class__", "1x", "a-b", "\xc3\xa4", "a.b"}) {
    INFO(name);
    const std::string complaint = Complaint(WithNames("\"a\"", "\"a\"", name));
    CHECK(complaint.find("inputs[0].name: '") != std::string::npos);
  }
  CHECK(Complaint(WithNames("\"a\"", "\"a\"", "x", "constexpr")).find("is a reserved word") !=
        std::string::npos);
  CHECK(Complaint(WithNames("\"a\"", "\"a\"", std::string(101, 'x'))).find("is longer than 100 bytes") !=
        std::string::npos);
}

}  // namespace
}  // namespace kevin
