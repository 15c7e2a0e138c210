// The text of a reply before it is read: reasoning, line ends, characters that nobody sees.

#include "agent/reply_text.h"

#include "tests/catch.h"

namespace kevin {
namespace {

std::string Hidden(const std::string& text, size_t first = 1) {
  const CleanText clean = WithoutHidden(text);
  return clean.text + "|" + HiddenNote(clean.hidden, 0, 1000, first);
}

}  // namespace

TEST_CASE("line ends of other systems") {
  CHECK(WithUnixLines("a\r\nb\rc\n\r\n") == "a\nb\nc\n\n");
  CHECK(WithUnixLines("a\r") == "a\n");
}

TEST_CASE("reasoning in tags is dropped") {
  const std::vector<std::pair<std::string, std::string>> answers = {
      {"<think>a</think>b", "b"},
      {"<thinking>a</thinking>b", "b"},
      {"<thought>a</thought>b", "b"},
      {"<reasoning>a</reasoning>b", "b"},
      {"[THINK]a[/THINK]b", "b"},
      {"<Think>a</THINK>b", "b"},
      {"a</think>b", "b"},
      {"a<think>b</think>c<think>d</think>e", "ace"},
      {"The tag `<think>` begins it.", "The tag `<think>` begins it."},
      {"const char* tag = \"<think>\";", "const char* tag = \"<think>\";"},
  };
  for (const auto& [text, answer] : answers) {
    INFO(text);
    CHECK(WithoutReasoning(text).text == answer);
    CHECK(WithoutReasoning(text).open_tag.empty());
  }
  for (const std::string tag : {"<think>", "<thinking>", "<thought>", "<reasoning>"}) {
    const ReplyAnswer open = WithoutReasoning("first " + tag + "and so on");
    CHECK((open.text == "first " && open.open_tag == tag && open.behind_it == "and so on"));
  }
}

TEST_CASE("characters that nobody sees are taken out and named, spaces are replaced") {
  CHECK(Hidden("plain\ttext\n") == "plain\ttext\n|");
  CHECK(Hidden("\xef\xbb\xbfint a;\n") == "int a;\n|");  // a byte order mark at the beginning
  CHECK(
      Hidden("int\xe2\x80\x8b a;\n") ==
      "int a;\n|The code held characters that nobody sees: U+200B (line 1) left out. Write code in plain ASCII.");
  CHECK(
      Hidden("int a;\nint\xc2\xa0"
             "b;\nint\xc2\xa0"
             "c;\n") ==
      "int a;\nint b;\nint c;\n|The code held characters that nobody sees: U+00A0 (lines 2, 3) replaced by spaces. "
      "Write code in plain ASCII.");
  CHECK(Hidden("a\xe2\x80\xae"
               "b\xef\xbb\xbf\xc2\xa0"
               "c",
               0) ==
        "ab c|The code held characters that nobody sees: U+202E, U+FEFF left out; U+00A0 replaced by spaces. "
        "Write code in plain ASCII.");
  CHECK(WithoutHidden("\x1b[31mint\x1b[0m a;\x1b]0;title\x07 b;\x1b]8;;x\x1b\\ c;\x1b(B d;")
            .text.starts_with("int a; b; c;"));
  CHECK(WithoutHidden("a\x1b[2Jb").hidden.front().name == "a terminal sequence");
  CHECK(WithoutHidden("a\x1b").text == "a");
  CHECK(WithoutHidden(std::string("a\0b\bc", 5)).text == "abc");
  CHECK(WithoutHidden("\xe6\x96\x87\xe5\xad\x97 \xc3\xa4 \xff").text ==
        "\xe6\x96\x87\xe5\xad\x97 \xc3\xa4 \xff");
  std::string many;
  for (int i = 0; i < 5000; ++i) many += "\xe2\x80\x8bx\n";
  CHECK(WithoutHidden(many).hidden.size() == kMostHidden);
  CHECK(HiddenNote(WithoutHidden(many).hidden, 0, 5000, 1).find("(lines 1, 2, 3, 4, 5, 6, ...)") !=
        std::string::npos);
  // Of other lines nothing is said.
  CHECK(HiddenNote(WithoutHidden(many).hidden, 2000, 3000, 1).empty());
}

}  // namespace kevin
