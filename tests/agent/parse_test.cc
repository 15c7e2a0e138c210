#include "agent/parse.h"

#include <chrono>
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
      {"bare file between prose", "Here is the file.\n\n" + kKernel + "\nIt copies one element.\n", kKernel,
       "", "It copies one element."},
      {"bare file that begins with a helper", "static int f() { return 1; }\n" + kKernel,
       "static int f() { return 1; }\n" + kKernel, "", ""},
      {"a mark of no language", "```kernel.cpp\n" + kKernel + "```", kKernel, "", ""},
      {"a wrong mark", "```python\n" + kKernel + "```", kKernel, "", ""},
      {"the definition, not a call after it", Cpp(kKernel) + "Call it:\n" + Cpp("launch(x, y);\n"), kKernel,
       "", "Call it:"},
      {"a fence in a raw string", Cpp("const char* s = R\"(\n```\n)\";\n" + kKernel) + "Done.",
       "const char* s = R\"(\n```\n)\";\n" + kKernel, "", "Done."},
      {"a fence in a comment", Cpp("/*\n```\nx\n```\n*/\n" + kKernel) + "Done.",
       "/*\n```\nx\n```\n*/\n" + kKernel, "", "Done."},
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
       "its code is marked `python`, and C++ is asked for", ""},
      {"another language", "```rust\nfn launch() {}\n```", "",
       "its code is marked `rust`, and C++ is asked for", ""},
      {"a module", "```python\nclass ModelNew(nn.Module):\n  pass\n```", "",
       "the reply is a PyTorch module or extension, and C++ is asked for", ""},
      {"several files", Cpp("int f();\n") + "kernel.h:\n" + Cpp("#include \"kernel.h\"\n" + kKernel), "",
       "the kernel includes `kernel.h`, another file of the reply", "kernel.h:"},
      {"a diff without a kernel", "```diff\n@@ -1 +1 @@\n-a\n+b\n```", "",
       "the reply is a diff, and there is no earlier kernel", ""},
      {"larger than anything", std::string(kMaxReplyBytes + 1, 'x'), "", "the reply is larger than 4 MiB",
       ""},
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
        "its code is marked `ptx`, and CUDA C++ is asked for");
  CHECK(ParseReply(fenced("python", cuda), "ptx").failure ==
        "its code is marked `python`, and PTX is asked for");
}

TEST_CASE("a reply may change an earlier kernel") {
  const std::string old = "static float f(float v) { return v; }\n" + kDraft;
  const std::vector<std::string> bases = {old, kKernel};
  const auto read = [&](const std::string& reply) { return ParseReply(reply, "cpp", bases); };
  CHECK(read(Cpp(kKernel)).form == "whole");
  CHECK(read(kKernel).form == "file");
  const ParsedReply diff =
      read("Less work:\n```diff\n@@ -1,1 +1,1 @@\n-static float f(float v) { return v; }\n+float g;\n```");
  CHECK((diff.form == "diff" && diff.source == "float g;\n" + kDraft && diff.summary == "Less work:"));
  CHECK(read("@@ -1,1 +1,1 @@\n-static float f(float v) { return v; }\n+float g;\n").form ==
        "diff");  // without a fence
  // Against the second one, the best so far.
  CHECK(read("```diff\n@@ -3,1 +3,1 @@\n-  out[0] = x[0];\n+  out[0] = 2 * x[0];\n```")
            .source->find("2 * x[0]") != std::string::npos);
  // Two blocks with parts of one change.
  CHECK(
      read(
          "```diff\n@@\n-#include <cmath>\n+#include <omp.h>\n```\nand\n```diff\n@@\n-  out[0] = x[0];\n+  out[0] = 1;\n```")
          .source ==
      "#include <omp.h>\nextern \"C\" void launch(const float* x, float* out) {\n  out[0] = 1;\n}\n");
  // A whole kernel counts before the diff that explains it.
  CHECK(read(Cpp(kKernel) + "```diff\n@@\n-#include <cmath>\n+#include <omp.h>\n```").form == "whole");
  const ParsedReply function = read(Cpp("static float f(float v) { return 2 * v; }\n"));
  CHECK((function.form == "function" &&
         function.source == "static float f(float v) { return 2 * v; }\n" + kDraft));
  CHECK(ParseReply(Cpp("static float f(float v) { return 2 * v; }\n")).form == "whole");  // no earlier kernel
  const ParsedReply unfit = read("```diff\n@@ -9,1 +9,1 @@\n-float h;\n+float g;\n```");
  CHECK(unfit.failure == "hunk 1 of the diff does not apply: the kernel has no line `float h;`");
  CHECK(unfit.unread.starts_with("```diff"));
}

TEST_CASE("kinds in Python: the last closed block with ModelNew or launch") {
  const std::string model = "import torch\n\nclass ModelNew(nn.Module):\n    pass\n";
  const auto read = [](const std::string& reply, const std::string& kind) { return ParseReply(reply, kind); };
  const auto fenced = [](const std::string& mark, const std::string& code) {
    return "```" + mark + "\n" + code + "```\n";
  };
  CHECK(read(fenced("python", model), "modelnew").source == model);
  CHECK(read(fenced("", model), "modelnew").source == model);
  CHECK(read(fenced("py", model) + "It fuses.", "modelnew").summary == "It fuses.");
  // C++ beside it, text about it, an earlier version of it.
  const std::string reply = "<think>class ModelNew</think>" + fenced("cpp", "void launch() {}\n") +
                            fenced("python", "class ModelNew(nn.Module):\n    old = 1\n") +
                            fenced("python", model) + fenced("python", "print(ModelNew())\n");
  CHECK(read(reply, "modelnew").source == model);
  // A CUDA text in a string: its comment and its apostrophe hide no fence.
  const std::string inside = "source = r\"\"\"/* it's */ int x;\"\"\"\n" + model;
  CHECK(read(fenced("python", inside), "modelnew").source == inside);
  CHECK(read(model + "\n", "modelnew").form == "file");
  CHECK_FALSE(read("```python\n" + model, "modelnew").source);
  CHECK(read("```python\n" + model, "modelnew").failure == "the reply was cut off inside its code block");
  CHECK_FALSE(read(fenced("cpp", "extern \"C\" void launch(float* x) {}\n"), "modelnew").source);

  const std::string launch = "import triton\n\ndef launch(x, out):\n    kernel[(1,)](x, out)\n";
  CHECK(read(fenced("python", launch) + fenced("python", "launch(a, b)\n"), "triton").source == launch);
  CHECK(FenceOf("triton") == "python");
  CHECK(FenceOf("cuda") == "cuda");
  // For the other kinds Python stays what it was: no kernel.
  CHECK_FALSE(read(fenced("python", model), "cuda").source);
}

TEST_CASE("what was not read is kept shortened, without reasoning and control characters") {
  const ParsedReply parsed =
      ParseReply("<think>secret</think>\x1b[2Jsorry " + std::string(5000, 'y') + "\nthe end");
  CHECK_FALSE(parsed.source);
  CHECK(parsed.unread.starts_with("\\x1b[2Jsorry yyy"));
  CHECK(parsed.unread.ends_with("the end"));
  CHECK(parsed.unread.size() < kMaxUnreadBytes + 20);
}

TEST_CASE("a hostile reply is read in time linear in its length") {
  const auto repeated = [](const std::string& part, size_t bytes) {
    std::string text;
    while (text.size() < bytes) text += part;
    return text;
  };
  const auto seconds_since = [](std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const std::vector<std::string> bases = {kKernel, repeated("a\n", kMaxSourceBytes),
                                          repeated("void f() {}\n", kMaxSourceBytes)};
  // Quadratic work on any of these would take hours. Each alone, behind a kernel in a raw string, and in a diff.
  for (const char* part : {"<think></think>",
                           "<think>",
                           "</think>",
                           "```cpp\nlaunch(\n```\n",
                           "```\n",
                           "```cpp\nvoid f() {\n",
                           "R\"(\n```\n",
                           "/*\n```\n",
                           "// ```\n",
                           "\\\n```\n",
                           "```diff\n@@\n-a\n+b\n```\n",
                           "}{",
                           "void f() {}\n",
                           "#include \"f\"\n",
                           "```cpp\n#include \"f\"\nvoid launch() {}\n```\n",
                           "```cpp\nvoid launch() {}\n```\n",
                           "\x1b]",
                           "\x1b[",
                           "\xe2\x80\x8b\n",
                           "+\n",
                           "a\n"}) {
    for (const std::string& start : {std::string(), Cpp(kKernel) + "```cpp\nconst char* s = R\"(\n",
                                     std::string("```diff\n@@ -1 +1 @@\n")}) {
      INFO(start << part);
      const std::string reply = start + repeated(part, size_t{1} << 20) + "\n```\n";
      const auto begin = std::chrono::steady_clock::now();
      const ParsedReply parsed = ParseReply(reply, "cpp", bases);
      CHECK(parsed.source.has_value() == parsed.failure.empty());
      CHECK(seconds_since(begin) < 2);
      CHECK(ParseReply(reply, "modelnew", bases).source.has_value() == false);
      CHECK(seconds_since(begin) < 4);
    }
  }
  // Names that are looked for among many others.
  const auto functions = [](size_t bytes) {
    std::string text;
    for (int i = 0; text.size() < bytes; ++i) text += "void f" + std::to_string(i) + "() {}\n";
    return text;
  };
  const std::string many = functions(size_t{3} << 19), calls = repeated("ff(1);", kMaxSourceBytes);
  for (const auto& [reply, base] : std::vector<std::pair<std::string, std::string>>{
           {Cpp(repeated("#include \"zz\"\n", kMaxSourceBytes) + kKernel) + Cpp("int a;\n"), kKernel},
           {Cpp(many) + Cpp(many + kKernel), kKernel},
           {Cpp("void f0() {}\nvoid launch() { " + calls + "}\n"), functions(kMaxSourceBytes)}}) {
    INFO(reply.substr(0, 50));
    const auto begin = std::chrono::steady_clock::now();
    ParseReply(reply, "cpp", std::vector<std::string>{base});
    CHECK(seconds_since(begin) < 2);
  }
  // Longer ones are not read at all.
  const auto begin = std::chrono::steady_clock::now();
  CHECK(ParseReply(Cpp(repeated("void f() {}\n", 10 << 20))).failure == "the reply is larger than 4 MiB");
  CHECK(seconds_since(begin) < 2);
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
