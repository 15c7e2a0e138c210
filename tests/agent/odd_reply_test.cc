// Replies beside the rule: fences inside of code, reasoning that a server split off, hidden characters, several
// blocks, whole kernels marked as diffs, code of another kind.

#include <string>
#include <vector>

#include "agent/parse.h"
#include "agent/text.h"
#include "tests/catch.h"

namespace kevin {
namespace {

const std::string kKernel =
    "#include <cmath>\nextern \"C\" void launch(const float* x, float* out) {\n  out[0] = x[0];\n}\n";
const std::string kDraft = "extern \"C\" void launch(const float* a, float* b) { b[0] = 0; }\n";

std::string Cpp(const std::string& code) { return "```cpp\n" + code + "```\n"; }

}  // namespace

TEST_CASE("a fence in a string, a raw string or a comment opens and closes nothing") {
  const std::vector<std::string> texts = {
      "const char* s = R\"(\n```\n)\";\n",      "const char* s = R\"x(\n```cpp\nint launch();\n```\n)x\";\n",
      "/*\n```cpp\nlaunch(x, out);\n```\n*/\n", "// usage: ```\nint n;\n",
      "// a comment \\\n```\nint n;\n",         "const char* s = \"\\\n```\\\n\";\n",
      "/* ``` */ const char* t = \"```\";\n",
  };
  for (const std::string& text : texts) {
    for (const std::string& code : {text + kKernel, kKernel + text}) {
      INFO(code);
      const bool may_end = code.starts_with("#") && text.starts_with("// usage");  // behind a whole kernel
      const ParsedReply parsed = ParseReply("Here:\n" + Cpp(code) + "Done.");
      CHECK(parsed.source.value_or(parsed.failure).starts_with(may_end ? kKernel : code));
      if (!may_end) CHECK((parsed.source == code && parsed.summary == "Done." && parsed.note.empty()));
    }
  }
  const std::string model = "class ModelNew(nn.Module):\n    pass\n";
  for (const std::string text : {"s = \"\"\"\n```\nit's\n```\n\"\"\"\n", "# usage: ```\nn = 1\n",
                                 "s = r'''\n```python\nx\n```\n'''\n"}) {
    INFO(text);
    CHECK(ParseReply("```python\n" + text + model + "```\n", "modelnew").source == text + model);
  }
  // An apostrophe, a quote or `/*` outside of the code, or in a directive, hides no fence.
  CHECK(ParseReply(Cpp(kKernel) + "It's done: \"/*\n" + Cpp("int a;\n")).source == kKernel);
  CHECK(ParseReply(Cpp(kKernel + "#error it's not\n") + "Done.").summary == "Done.");
  CHECK(ParseReply(Cpp(kKernel + "/* it is not closed\n") + "Done.").summary == "Done.");
}

TEST_CASE("a server may have split reasoning off, or have ended the reply at the length limit") {
  const auto why = [](const std::string& text, const ReplyFacts& facts) {
    const ParsedReply parsed = ParseReply(text, "cpp", {}, facts);
    CHECK_FALSE(parsed.source);
    return parsed.failure + ". " + parsed.advice;
  };
  const std::string briefly = "Reason briefly and leave enough of the length limit for the file.";
  const std::string ended = "the reply ended inside its reasoning, before an answer";
  const std::string inside = "Code inside the reasoning is not read: end the reasoning, then send the file.";
  CHECK(why("", {"", false}) == "the reply was empty. ");
  CHECK(why("", {"Let me think", true}) == ended + ". " + briefly);
  CHECK(why(" \n", {"Let me think", false}) == ended + ". " + briefly);
  CHECK(why("<thinking>I could", {}) == ended + ": `<thinking>` is never closed. " + briefly);
  CHECK(why("[THINK]I could", {}) == ended + ": `[think]` is never closed. " + briefly);
  CHECK(why("", {"Like this:\n" + Cpp(kKernel), true}) == ended + ". " + inside);
  CHECK(why("<think>Like this:\n" + Cpp(kKernel), {}) == ended + ": `<think>` is never closed. " + inside);
  CHECK(why("First I would", {"", true}) ==
        "the reply reached the length limit before a code block. Write the file first, and be brief.");
  CHECK(why("```cpp\nvoid launch(", {"", true}) ==
        "the reply was cut off inside its code block. Keep the reply within the length limit.");
  // A kernel is read all the same.
  CHECK(ParseReply(Cpp(kKernel), "cpp", {}, {"reasons", true}).source == kKernel);
}

TEST_CASE("characters that nobody sees are taken out of a kernel, and the next turn is told") {
  const std::string hidden =
      "#include <cmath>\nextern \"C\" void launch(const float* x,\xc2\xa0"
      "float* out) {\n"
      "  out[0]\xe2\x80\x8b = x[0];\n}\n";
  const std::string plain =
      "#include <cmath>\nextern \"C\" void launch(const float* x, float* out) {\n  out[0] = x[0];\n}\n";
  const ParsedReply parsed = ParseReply("Sure:\n\n" + Cpp(hidden) + "Done\xe2\x80\x8b.");
  CHECK(parsed.source == plain);
  CHECK(
      parsed.note ==
      "The code held characters that nobody sees: U+200B (line 3) left out; U+00A0 (line 2) replaced by spaces. "
      "Write code in plain ASCII.");
  CHECK(ParseReply(hidden).note == parsed.note);
  CHECK(ParseReply("a\xe2\x80\x8b b\n" + Cpp(kKernel)).note.empty());  // outside of the code
  CHECK(ParseReply("\x1b[1m" + Cpp("\x1b[31m" + kKernel + "\x1b[0m// end\n")).source == kKernel + "// end\n");
}

TEST_CASE("of several blocks one is judged, and the next turn is told which") {
  const std::string which = "One block of a reply is judged, here block 2 of ";
  const ParsedReply two = ParseReply(Cpp(kDraft) + "Better:\n" + Cpp(kKernel));
  CHECK(two.source == kKernel);
  CHECK(two.note == which + "2 (`cpp`). Left out: block 1 (`cpp`, with `launch`).");
  const ParsedReply helper = ParseReply(Cpp("static float half(float v) { return v / 2; }\n") + Cpp(kKernel) +
                                        "```bash\nmake\n```\n```\nint i = 0;\n```\n");
  CHECK(helper.note == which + "4 (`cpp`). Left out: block 1 (`cpp`, with `half`).");
  CHECK(ParseReply(Cpp(kKernel)).note.empty());
  CHECK(ParseReply(Cpp(kKernel) + Cpp("launch(x, out);\n")).note.empty());
  const std::string model = "```python\nclass ModelNew(nn.Module):\n    pass\n```\n";
  CHECK(ParseReply(model + model, "modelnew").note ==
        which + "2 (`python`). Left out: block 1 (`python`, with `ModelNew`).");
  // That for the CPU, where there is one for a GPU after it.
  const std::string cuda = "__global__ void f(float* y) {}\nvoid launch(float* y) { f<<<1, 1>>>(y); }\n";
  CHECK(ParseReply(Cpp(kKernel) + "```cuda\n" + cuda + "```\n").source == kKernel);
}

TEST_CASE("a whole kernel that is marked as a diff is taken") {
  std::string added;
  for (const std::string_view line : SplitLines(kKernel)) added += "+" + std::string(line) + "\n";
  const std::vector<std::string> bases = {kDraft};
  for (const std::string& diff :
       {kKernel, added, "--- /dev/null\n+++ b/kernel.cpp\n@@ -0,0 +1,4 @@\n" + added}) {
    INFO(diff);
    for (const auto& earlier : {std::vector<std::string>(), bases}) {
      const ParsedReply parsed = ParseReply("```diff\n" + diff + "```\nDone.", "cpp", earlier);
      CHECK(parsed.source.value_or(parsed.failure) == kKernel);
      CHECK((parsed.form == "whole" && parsed.summary == "Done."));
    }
  }
  const std::string model = "class ModelNew(nn.Module):\n    pass\n";
  CHECK(ParseReply("```diff\n" + model + "```\n", "modelnew").source == model);
  // Half a kernel is none, and neither is a change.
  CHECK_FALSE(ParseReply("```diff\n" + kKernel.substr(0, kKernel.size() - 2) + "```\n").source);
  const std::string change = "```diff\n@@ -1,1 +1,1 @@\n-" + kDraft + "+int a;\n```\n";
  CHECK(ParseReply(change, "cpp", bases).form == "diff");
}

TEST_CASE("code of another kind is told what to write instead") {
  const std::string cuda = "__global__ void f(float* y) {}\nvoid launch(float* y) { f<<<1, 1>>>(y); }\n";
  const std::string triton =
      "import torch\nimport triton\n\n@triton.jit\ndef f(x): pass\n\ndef launch(x, out):\n    f[(1,)](x)\n";
  const std::string model = "import torch\n\nclass ModelNew(torch.nn.Module):\n    pass\n";
  const std::string rust = "pub fn launch(x: &[f32], out: &mut [f32]) { out[0] = x[0]; }\n";
  struct Told {
    std::string kind, mark, code, failure, advice;
  };
  const std::string for_gpu = "the code is CUDA C++ for a GPU, and C++ for the CPU is asked for";
  const std::string module = "the reply is a PyTorch module or extension, and ";
  const std::string no_module = "Do not write `class ModelNew`";
  const std::string python = "the code is Python, and C++ is asked for", asked = ", and Python is asked for";
  const std::string no_triton = "Do not use Triton: write the kernels in C++";
  const std::vector<Told> all = {
      {"cpp", "cpp", cuda, for_gpu, "Write loops with OpenMP"},
      {"cpp", "", cuda, for_gpu, "Write loops with OpenMP"},
      {"cpp", "python", model, module + "C++ is asked for", no_module},
      {"cuda", "", model, module + "CUDA C++ is asked for", no_module},
      {"cpp", "python", triton, "its code is marked `python`, and C++ is asked for", no_triton},
      {"cpp", "", triton, python, no_triton},
      {"cpp", "cpp", triton, python, no_triton},
      {"cpp", "", "def launch(x, out):\n    out[:] = x\n", python, "Write the kernels in C++"},
      {"cpp", "rust", rust, "its code is marked `rust`, and C++ is asked for", ""},
      {"cpp", "", rust, "the code is Rust, and C++ is asked for", ""},
      {"modelnew", "python", triton, "the file defines no `class ModelNew`", "Let a class `ModelNew`"},
      {"modelnew", "cpp", kKernel, "its code is marked `cpp`" + asked,
       "Write a Python file with `class ModelNew`"},
      {"modelnew", "cuda", cuda, "its code is marked `cuda`" + asked,
       "Write a Python file with `class ModelNew`"},
      {"triton", "cuda", cuda, "its code is marked `cuda`" + asked,
       "Write the kernels in Python with `@triton.jit`"},
      {"triton", "python", model, "the file defines no `def launch`",
       "Let a function `launch` start the kernels"},
  };
  for (const Told& told : all) {
    INFO(told.kind << " " << told.mark << "\n" << told.code);
    const ParsedReply parsed = ParseReply("```" + told.mark + "\n" + told.code + "```\n", told.kind);
    CHECK_FALSE(parsed.source);
    CHECK(parsed.failure == told.failure);
    CHECK(parsed.advice.substr(0, told.advice.size()) == told.advice);
    CHECK(parsed.advice.empty() == told.advice.empty());
    CHECK_FALSE(parsed.unread.empty());
  }
  CHECK(ParseReply("```rust\n" + rust + "```\n```go\nfunc f() {}\n```\n").failure ==
        "its code blocks are marked `rust` and `go`, and C++ is asked for");
  // C++ that mentions Python in a comment is C++.
  const std::string comment = "/*\nimport torch\ndef launch(x):\n*/\n" + kKernel;
  CHECK(ParseReply(Cpp(comment)).source == comment);
}

}  // namespace kevin
