#include "agent/parse.h"

#include <string>
#include <vector>

#include "agent/text.h"
#include "tests/catch.h"

namespace kevin {
namespace {

const std::string kKernel =
    "#include <cmath>\nextern \"C\" void launch(const float* x, float* out) {\n  out[0] = x[0];\n}\n";
const std::string kDraft = "extern \"C\" void launch(const float* a, float* b) { b[0] = 0; }\n";

struct Case {
  std::string name, reply;
  std::string source;   // expected; empty: a failure is expected
  std::string failure;  // expected beginning of the failure
  std::string summary;
};

std::string Cpp(const std::string& code) { return "```cpp\n" + code + "```\n"; }

std::string WithCrLf(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '\n' ? std::string("\r\n") : std::string(1, c);
  return out;
}

std::string Indented(const std::string& text, const std::string& by) {
  std::string out;
  for (const std::string_view line : SplitLines(text)) out += by + std::string(line) + "\n";
  return out;
}

std::vector<Case> Accepted() {
  return {
      {"one block", Cpp(kKernel), kKernel, "", ""},
      {"prose around", "Sure!\n\n" + Cpp(kKernel) + "\nI copied it.\n", kKernel, "", "I copied it."},
      {"summary before", "I vectorised it:\n\n" + Cpp(kKernel), kKernel, "", "I vectorised it:"},
      {"two blocks with launch: the last", Cpp(kDraft) + "Better:\n" + Cpp(kKernel) + "Done.", kKernel, "",
       "Done."},
      {"usage after the answer", Cpp(kKernel) + "Compile:\n```bash\ng++ launch(x)\n```\nDone.", kKernel, "",
       "Compile:\nDone."},
      {"a later block without launch", Cpp(kKernel) + "The idea:\n```cpp\nint i = 0;\n```\n", kKernel, "",
       "The idea:"},
      {"python last", Cpp(kKernel) + "```python\ndef launch(x): pass\n```", kKernel, "", ""},
      {"only a block without launch", "```cpp\nint relu(int);\n```", "int relu(int);\n", "", ""},
      {"no launch but launcher", "```\nint launcher(int);\nint launch;\n```\n",
       "int launcher(int);\nint launch;\n", "", ""},
      {"no language", "```\n" + kKernel + "```", kKernel, "", ""},
      {"c++", "```c++\n" + kKernel + "```", kKernel, "", ""},
      {"C", "```C\n" + kKernel + "```", kKernel, "", ""},
      {"cuda", "```cuda\n" + kKernel + "```", kKernel, "", ""},
      {"attributes", "```cpp {.line-numbers} title=\"k.cpp\"\n" + kKernel + "```", kKernel, "", ""},
      {"text tag with launch", "```text\n" + kKernel + "```", kKernel, "", ""},
      {"tildes", "~~~cpp\n" + kKernel + "~~~\nDone.", kKernel, "", "Done."},
      {"longer fence holds a shorter one", "````cpp\n// ```\n" + kKernel + "````\n", "// ```\n" + kKernel, "",
       ""},
      {"tildes hold backticks", "~~~\n// ```\n" + kKernel + "~~~\n", "// ```\n" + kKernel, "", ""},
      {"CRLF", WithCrLf("Here:\n" + Cpp(kKernel) + "Done.\n"), kKernel, "", "Done."},
      {"indented in a list", "1. Kernel:\n" + Indented(Cpp(kKernel), "   ") + "2. End.", kKernel, "",
       "2. End."},
      {"backticks in prose", "Use `launch(x)` and ```not this``` here.\n" + Cpp(kKernel), kKernel, "",
       "Use `launch(x)` and ```not this``` here."},
      {"fence after prose", "The kernel: ```cpp\n" + kKernel + "```\n", kKernel, "", ""},
      {"fence closed on the last line of code",
       "```cpp\n" + kKernel.substr(0, kKernel.size() - 1) + "```\nDone.", kKernel, "", "Done."},
      {"unclosed but whole", "Here:\n```cpp\n" + kKernel, kKernel, "", "Here:"},
      {"unclosed, then another block", "```cpp\n#include <cmath>\nvoid f() {\nOops, again:\n" + Cpp(kKernel),
       kKernel, "", ""},
      {"cut off second try, whole first", Cpp(kDraft) + "Better:\n```cpp\nextern \"C\" void launch(const fl",
       kDraft, "", "Better:"},
      {"think", "<think>\nmaybe " + Cpp(kDraft) + "</think>\n" + Cpp(kKernel), kKernel, "", ""},
      {"two thinks", "<think>a</think>x<think>" + Cpp(kDraft) + "</think>" + "\n" + Cpp(kKernel), kKernel, "",
       "x"},
      {"lone closing think", "maybe\n" + Cpp(kDraft) + "</think>\n" + Cpp(kKernel), kKernel, "", ""},
      {"think after the answer", Cpp(kKernel) + "<think>was that right? " + Cpp(kDraft), kKernel, "", ""},
      {"thinking", "<thinking>" + Cpp(kDraft) + "</thinking>\n" + Cpp(kKernel), kKernel, "", ""},
      {"bare file", "\n" + kKernel, kKernel, "", ""},
      {"brace in a string and a comment",
       "```cpp\n// {\nconst char* s = \"{\\\"\"; char c = '{';  /* ( */ long n = 1'000;\n" + kKernel,
       "// {\nconst char* s = \"{\\\"\"; char c = '{';  /* ( */ long n = 1'000;\n" + kKernel, "", ""},
  };
}

std::vector<Case> Rejected() {
  const std::string half = kKernel.substr(0, kKernel.size() - 2);
  return {
      {"empty", "", "", "the reply was empty", ""},
      {"white space", " \r\n\t\n", "", "the reply was empty", ""},
      {"prose only", "I cannot do that.", "", "the reply held no fenced code block", "I cannot do that."},
      {"prose that mentions launch()", "Write launch(x) {};", "", "the reply held no fenced code block",
       "Write launch(x) {};"},
      {"Markdown heading is no file", "# Plan\nlaunch(x);", "", "the reply held no fenced code block",
       "# Plan\nlaunch(x);"},
      {"cut off", "```cpp\n" + half, "", "the reply was cut off inside its code block", ""},
      {"cut off in a comment", "```cpp\n" + kKernel + "/* and", "",
       "the reply was cut off inside its code block", ""},
      {"cut off in a name", "```cpp\n" + kKernel + "static void he", "",
       "the reply was cut off inside its code block", ""},
      {"unterminated think", "<think>\nI could " + Cpp(kDraft), "", "the reply ended inside its reasoning",
       ""},
      {"empty block", "```cpp\n```\n", "", "the reply's code blocks were empty or not C++", ""},
      {"opening fence at the very end", "Here:\n```cpp", "", "the reply's code blocks were empty or not C++",
       "Here:"},
      {"only python", "```python\ndef launch(x): pass\n```", "",
       "the reply's code blocks were empty or not C++", ""},
      {"bare file, cut off", half, "", "the reply held no fenced code block", std::string(Trim(half))},
      {"too large", "```cpp\nvoid launch();" + std::string(kMaxSourceBytes, ' ') + "\n```", "",
       "the code block is larger than 512 KiB", ""},
  };
}

}  // namespace

TEST_CASE("replies with an answer") {
  for (const Case& c : Accepted()) {
    INFO(c.name);
    const ParsedReply parsed = ParseReply(c.reply);
    CHECK(parsed.failure == "");
    REQUIRE(parsed.source);
    CHECK(*parsed.source == c.source);
    CHECK(parsed.summary == c.summary);
  }
}

TEST_CASE("replies without one say why") {
  for (const Case& c : Rejected()) {
    INFO(c.name);
    const ParsedReply parsed = ParseReply(c.reply);
    CHECK_FALSE(parsed.source);
    CHECK(parsed.failure.substr(0, c.failure.size()) == c.failure);
    CHECK(parsed.failure != "");
    CHECK(parsed.summary == c.summary);
  }
}

TEST_CASE("for a GPU the block in the language that was asked for is the answer") {
  const std::string cuda =
      "__global__ void f(float* y) { y[0] = 1; }\nvoid launch(float* y) { f<<<1, 1>>>(y); }\n";
  const std::string draft = "void launch(float* y) { g<<<1, 1>>>(y); }\n";
  const std::string ptx =
      ".version 8.0\n.visible .entry f() { ret; }\nvoid launch(float* y) { f<<<1, 1>>>(); }\n";
  const auto fenced = [](const std::string& tag, const std::string& code) {
    return "```" + tag + "\n" + code + "```\n";
  };
  const std::vector<std::pair<std::string, std::string>> replies = {
      {"cuda", fenced("cuda", cuda)},
      {"cuda", fenced("cu", cuda)},
      {"cuda", fenced("c++", cuda)},
      {"cuda", fenced("cpp", cuda)},
      {"cuda", fenced("", cuda)},
      {"cuda", fenced("cuda", draft) + "Better: ```cuda\n" + cuda + "```\n"},
      {"cuda", fenced("cuda", cuda) + "Call it so:\n" + fenced("cpp", "launch(y);\n")},
      {"cuda", fenced("cpp", draft) + fenced("cuda", cuda) + fenced("", "launch(y);\n")},
      {"cuda", fenced("cuda", cuda) + "An aside:\n" + fenced("cuda", "int warps = 8;\n")},
      {"cuda", fenced("cuda", cuda) + "It compiles to:\n" + fenced("ptx", ptx)},
      {"cuda", cuda},
      {"ptx", fenced("ptx", ptx)},
      {"ptx", fenced("cuda", cuda) + "by hand:\n" + fenced("ptx", ptx) + fenced("cuda", draft)},
      {"ptx", fenced("asm", ptx)},
      {"ptx", ptx}};
  for (const auto& [kind, reply] : replies) {
    INFO(kind << ":\n" << reply);
    const ParsedReply parsed = ParseReply(reply, kind);
    CHECK(parsed.failure == "");
    CHECK(parsed.source.value_or("none") == (kind == "ptx" ? ptx : cuda));
  }
  CHECK(ParseReply(fenced("ptx", ptx), "cuda").failure ==
        "the reply's code blocks were empty or not CUDA C++");
  CHECK(ParseReply(fenced("python", cuda), "ptx").failure == "the reply's code blocks were empty or not PTX");
}

TEST_CASE("only a fence that was not closed counts as truncated") {
  CHECK(ParseReply("```cpp\n" + kKernel).truncated_fence);
  CHECK_FALSE(ParseReply(Cpp(kKernel)).truncated_fence);
}

TEST_CASE("every prefix of a reply is read without harm, and never as half a kernel") {
  const std::string reply =
      "<think>plan</think>\nText `a`:\n" + Cpp(kDraft) + "or\n" + Cpp(kKernel) + "Because.";
  for (size_t length = 0; length <= reply.size(); ++length) {
    const ParsedReply parsed = ParseReply(std::string_view(reply).substr(0, length));
    INFO(length);
    CHECK(parsed.source.has_value() == parsed.failure.empty());
    if (parsed.source) {
      const bool whole = *parsed.source == kDraft || *parsed.source == kKernel ||
                         *parsed.source + "\n" == kDraft || *parsed.source + "\n" == kKernel;
      CHECK(whole);
    }
  }
}

TEST_CASE("a summary is clipped at a character, a table shows its first sentence") {
  const ParsedReply parsed = ParseReply(Cpp(kKernel) + std::string(599, 'a') + "äöü");
  CHECK(parsed.summary.size() <= kMaxSummaryBytes);
  CHECK(parsed.summary == std::string(597, 'a') + "…");
  CHECK(FirstSentence("Unrolled\n  by four. Then more.") == "Unrolled by four.");
  CHECK(FirstSentence("Used v1.5 of it") == "Used v1.5 of it");
  CHECK(FirstSentence("  ") == "");
  CHECK(FirstSentence("abcdefgh", 6) == "abc…");
}

}  // namespace kevin
