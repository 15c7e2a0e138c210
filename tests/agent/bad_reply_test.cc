// What an episode makes of replies that are no kernel, and what the next prompt says.

#include <chrono>

#include "agent/episode.h"
#include "agent/parse.h"
#include "tests/catch.h"
#include "tests/support/fakes.h"
#include "tests/support/golden.h"

namespace kevin {
namespace {

// The reply before the last one ends as a server says it.
class EndingPolicy : public testing::ScriptedPolicy {
 public:
  EndingPolicy(std::vector<std::string> replies, std::string reasoning, StopReason stop)
      : ScriptedPolicy(replies), number_(replies.size() - 1), reasoning_(std::move(reasoning)), stop_(stop) {}

  Completion Complete(const Request& request, const CancelToken* cancel, const OnText& on_text) override {
    Completion completion = ScriptedPolicy::Complete(request, cancel, on_text);
    if (requests.size() == number_) {
      completion.reasoning = reasoning_;
      completion.stop_reason = StopReasonName(stop_);
    }
    return completion;
  }

 private:
  const size_t number_;
  const std::string reasoning_;
  const StopReason stop_;
};

struct Reply {
  std::string name, text;
  std::string reasoning = {};
  StopReason stop = StopReason::kStop;
  std::string kind = "cpp";
};

struct Played {
  TurnRecord turn;
  std::string next_prompt;
};

Played Play(const Reply& reply, const std::string& first = "") {
  testing::TempFolder folder;
  const Problem problem = testing::ReluProblem();
  testing::FakeEnvironment environment;
  environment.facts.kinds = {reply.kind};
  Store store = Store::Open(folder.path() / "kevin.db", OpenMode::kCreate);
  std::vector<std::string> replies = {
      reply.text, reply.kind == "cpp"
                      ? testing::FakeReply("measured 1.5")
                      : "```python\n// measured 1.5\nclass ModelNew(nn.Module):\n    pass\n```\n"};
  if (!first.empty()) replies.insert(replies.begin(), first);
  EndingPolicy policy(replies, reply.reasoning, reply.stop);
  EpisodeOptions options;
  options.turns = static_cast<int>(replies.size());
  options.run = store.BeginRun({});
  options.output = folder.path() / "out";
  options.audit_rates = {0, 0};
  const EpisodeRecord episode = RunEpisode(problem, policy, environment, store, options, {}, nullptr);
  CHECK(episode.state == EpisodeState::kDone);
  CHECK(episode.best_turn == options.turns);  // the turn after it was as good as any
  return {*store.LoadTurn(episode.id, options.turns - 1), policy.requests.back().messages[1].content};
}

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("replies that are no kernel: outcome, and what the next prompt says") {
  const std::string module =
      "```python\nimport torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x.relu()\n```\n";
  const std::string kernel = testing::FakeSource("measured 1.2");
  const std::string rust = "fn launch(x: &[f32], out: &mut [f32]) {}\n";
  const std::string triton =
      "import triton\n\n@triton.jit\ndef k(x): pass\n\ndef launch(x, out):\n    k[(1,)](x)\n";
  const std::string chinese = "\u62b1\u6b49\uff0c\u8fd9\u4e2a\u5185\u6838\u65e0\u6cd5\u4f18\u5316\u3002";
  std::string thoughts = "<think>";
  while (thoughts.size() < (3 << 20)) thoughts += "Or rather <think> ```cpp\nint launch() {\n``` ";
  const std::vector<Reply> replies = {
      {"nothing", ""},
      {"10 MB", "Here: " + std::string(10 << 20, 'x')},
      {"another language", "Voici le noyau :\n```rust\n" + rust + "```\n"},
      {"another language without a mark", "```\n" + rust + "```\n"},
      {"prose in another language", "Entschuldigung, das kann ich nicht."},
      {"Chinese", chinese},
      {"terminal escapes", "\x1b]0;owned\x07\x1b[2J\x1b[31mNo kernel.\x1b[0m\u202e"},
      {"a module", module},
      {"a kernel for a GPU",
       "```cpp\n__global__ void f(float* y) {}\nvoid launch(float* y) { f<<<1, 1>>>(y); }\n```\n"},
      {"a file in Triton", "```python\n" + triton + "```\n"},
      {"a file in Triton without a mark", "```\n" + triton + "```\n"},
      {"several files",
       "kernel.h:\n```cpp\nint f();\n```\nkernel.cpp:\n```cpp\n#include \"kernel.h\"\n" + kernel + "```\n"},
      {"endless reasoning", "<think>" + std::string(100000, 'h')},
      {"endless reasoning in another tag", "Well. <thinking>" + std::string(100000, 'h')},
      {"endless reasoning with fences", thoughts},
      {"endless reasoning that the server split off", "", std::string(100000, 'h'), StopReason::kLength},
      {"code in reasoning that the server split off", "", "So:\n```cpp\n" + kernel + "```\nOr",
       StopReason::kLength},
      {"cut off", "```cpp\n" + kernel.substr(0, kernel.size() - 4)},
      {"cut off before the code", "First I would transpose the", "", StopReason::kLength},
      {"a kernel inside endless reasoning", "<think>First:\n```cpp\n" + kernel + "```\nOr rather"},
      {"a diff of nothing", "```diff\n@@ -1,2 +1,2 @@\n-int launch() {\n+int launch(int) {\n```\n"},
      {"bytes that are no text", std::string("\x00\xff\xfe\x01", 4) + "\n"},
      {"a file in Triton for a module", "```python\n" + triton + "```\n", "", StopReason::kStop, "modelnew"},
      {"C++ for a module", "```cpp\n" + kernel + "```\n", "", StopReason::kStop, "modelnew"},
  };
  std::string all;
  for (const Reply& reply : replies) {
    INFO(reply.name);
    const auto begin = std::chrono::steady_clock::now();
    const Played played = Play(reply);
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(2));
    CHECK(played.turn.evaluation.outcome == "parse_failed");
    CHECK(played.turn.reward == 0);
    CHECK(Has(played.next_prompt, "### Turn 1\n\n" + played.turn.feedback));
    CHECK(played.next_prompt.size() < 12000);
    CHECK(played.next_prompt.find('\x1b') == std::string::npos);
    all += "=== " + reply.name + "\n" + played.turn.feedback + "\n\n";
    if (reply.kind != "cpp") continue;
    // Behind a correct kernel: that one stays in full, and the table has the reason.
    const Played later = Play(reply, testing::FakeReply("measured 1.2"));
    const std::string fence = "```cpp\n" + kernel;
    CHECK(later.turn.evaluation.outcome == "parse_failed");
    CHECK(Has(later.next_prompt, "### Turn 1\n\n" + fence));
    CHECK(Has(later.next_prompt, "### Turn 2\n\n" + later.turn.feedback));
    CHECK(Has(later.next_prompt, "| 2 | parse_failed: "));
    CHECK(later.next_prompt.size() < 9000);
  }
  testing::CheckGolden("tests/agent/golden/bad_replies.txt", all);
}

TEST_CASE("replies that look bad and are kernels, and what the next prompt says of the rest") {
  const std::string kernel = testing::FakeSource("measured 1.2"), fenced = "```cpp\n" + kernel + "```\n";
  std::string hidden = kernel;
  hidden.insert(hidden.find("launch"), "\u200b");
  hidden.replace(hidden.find(" x[0]"), 1, "\u00a0");
  const std::string draft =
      "```cpp\n// draft\nextern \"C\" void launch(const float* x, float* out) { }\n```\n";
  const std::string seen = "The code held characters that nobody sees: ";
  struct Read {
    std::string name, reply, note;  // the note of the next prompt
  };
  const std::vector<Read> replies = {
      {"a fence in a raw string", "```cpp\n" + kernel + "const char* s = R\"(\n```\n)\";\n```\n", ""},
      {"a fence in a string", "```cpp\n" + kernel + "const char* s = \"\\\n```\\\n\";\n```\n", ""},
      {"a fence in a comment", "```cpp\n" + kernel + "/*\n```cpp\nlaunch(x);\n```\n*/\n```\n", ""},
      {"without a fence", "The whole file:\n\n" + kernel, ""},
      {"marked as a diff", "```diff\n" + kernel + "```\n", ""},
      {"behind reasoning in another tag", "<thinking>" + draft + "</thinking>\n" + fenced, ""},
      {"escapes in a comment", "```cpp\n" + kernel + "// \x1b[2J\n```\n",
       seen + "a terminal sequence (line 3) left out."},
      {"hidden characters", "```cpp\n" + hidden + "```\n",
       seen + "U+200B (line 2) left out; U+00A0 (line 2) replaced by spaces. Write code in plain ASCII."},
      {"several complete kernels", draft + "Better:\n" + draft + "Best:\n" + fenced,
       "One block of a reply is judged, here block 3 of 3 (`cpp`). Left out: block 1 (`cpp`, with `launch`), block 2 "
       "(`cpp`, with `launch`)."},
      {"a helper in a block of its own", "```cpp\nint half(int v) { return v / 2; }\n```\n" + fenced,
       "One block of a reply is judged, here block 2 of 2 (`cpp`). Left out: block 1 (`cpp`, with `half`)."},
      {"a kernel for a GPU behind it",
       fenced + "```cuda\n__global__ void f(float* y) {}\nvoid launch(float* y) { f<<<1, 1>>>(y); }\n```\n",
       "Left out: block 2 (`cuda`, with `launch`)."},
  };
  for (const Read& read : replies) {
    INFO(read.name);
    const Played played = Play({read.name, read.reply});
    CHECK(played.turn.evaluation.outcome == "measured");
    CHECK(played.turn.evaluation.source.starts_with(kernel));
    CHECK(Has(played.next_prompt, read.note));
    CHECK(read.note.empty() ==
          !(Has(played.next_prompt, seen) || Has(played.next_prompt, "One block of a reply")));
    CHECK(played.next_prompt.find('\x1b') == std::string::npos);
  }
}

TEST_CASE("a diff that does not apply: the place is named, and the reply shown") {
  const Played played =
      Play({"", "```diff\n@@ -1,2 +1,2 @@\n // measured 1.2\n-int launch() {\n+int launch(int) {\n```\n"},
           testing::FakeReply("measured 1.2"));
  CHECK(played.turn.evaluation.outcome == "parse_failed");
  CHECK(Has(played.next_prompt,
            "hunk 1 of the diff does not apply: behind line 1 of the kernel, `// measured 1.2`, it "
            "expects `int launch() {` and not `extern \"C\" void launch("));
  CHECK(Has(played.next_prompt, "-int launch() {\n+int launch(int) {\n"));
}

}  // namespace kevin
