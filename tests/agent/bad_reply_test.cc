// What an episode makes of replies that are no kernel, and what the next prompt says.

#include "agent/episode.h"
#include "agent/parse.h"
#include "tests/catch.h"
#include "tests/support/fakes.h"
#include "tests/support/golden.h"

namespace kevin {
namespace {

struct Played {
  TurnRecord turn;
  std::string next_prompt;
};

Played Play(const std::string& reply, const std::string& first = "") {
  testing::TempFolder folder;
  const Problem problem = testing::ReluProblem();
  testing::FakeEnvironment environment;
  Store store = Store::Open(folder.path() / "kevin.db", OpenMode::kCreate);
  std::vector<std::string> replies = {reply, testing::FakeReply("measured 1.5")};
  if (!first.empty()) replies.insert(replies.begin(), first);
  testing::ScriptedPolicy policy(replies);
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
  const std::vector<std::pair<std::string, std::string>> replies = {
      {"nothing", ""},
      {"10 MB", "Here: " + std::string(10 << 20, 'x')},
      {"another language", "Voici le noyau :\n```rust\nfn launch(x: &[f32], out: &mut [f32]) {}\n```\n"},
      {"prose in another language", "Entschuldigung, das kann ich nicht."},
      {"terminal escapes", "\x1b]0;owned\x07\x1b[2J\x1b[31mNo kernel.\x1b[0m\u202e"},
      {"a module", module},
      {"several files",
       "kernel.h:\n```cpp\nint f();\n```\nkernel.cpp:\n```cpp\n#include \"kernel.h\"\n" + kernel + "```\n"},
      {"endless reasoning", "<think>" + std::string(100000, 'h')},
      {"cut off", "```cpp\n" + kernel.substr(0, kernel.size() - 4)},
      {"a kernel inside endless reasoning", "<think>First:\n```cpp\n" + kernel + "```\nOr rather"},
      {"a diff of nothing", "```diff\n@@ -1,2 +1,2 @@\n-int launch() {\n+int launch(int) {\n```\n"},
      {"bytes that are no text", std::string("\x00\xff\xfe\x01", 4) + "\n"},
  };
  std::string all;
  for (const auto& [name, reply] : replies) {
    INFO(name);
    const Played played = Play(reply);
    CHECK(played.turn.evaluation.outcome == "parse_failed");
    CHECK(played.turn.reward == 0);
    CHECK(Has(played.next_prompt, "### Turn 1\n\n" + played.turn.feedback));
    CHECK(played.next_prompt.size() < 8000);
    CHECK(played.next_prompt.find('\x1b') == std::string::npos);
    // Behind a correct kernel: that one stays in full, and the table has the reason.
    const Played later = Play(reply, testing::FakeReply("measured 1.2"));
    const std::string fence = "```cpp\n" + kernel;
    CHECK(later.turn.evaluation.outcome == "parse_failed");
    CHECK(Has(later.next_prompt, "### Turn 1\n\n" + fence));
    CHECK(Has(later.next_prompt, "### Turn 2\n\n" + later.turn.feedback));
    CHECK(Has(later.next_prompt, "| 2 | parse_failed: "));
    CHECK(later.next_prompt.size() < 9000);
    all += "=== " + name + "\n" + played.turn.feedback + "\n\n";
  }
  testing::CheckGolden("tests/agent/golden/bad_replies.txt", all);
}

TEST_CASE("replies that look bad and are kernels") {
  const std::string kernel = testing::FakeSource("measured 1.2");
  const std::vector<std::pair<std::string, std::string>> replies = {
      {"a fence in a string", "```cpp\n" + kernel + "const char* s = R\"(\n```\n)\";\n```\n"},
      {"without a fence", "The whole file:\n\n" + kernel},
      {"escapes in a comment", "```cpp\n" + kernel + "// \x1b[2J\n```\n"},
  };
  for (const auto& [name, reply] : replies) {
    INFO(name);
    const Played played = Play(reply);
    CHECK(played.turn.evaluation.outcome == "measured");
    CHECK(played.turn.evaluation.source.starts_with(kernel));
  }
}

TEST_CASE("a diff that does not apply: the place is named, and the reply shown") {
  const Played played =
      Play("```diff\n@@ -1,2 +1,2 @@\n // measured 1.2\n-int launch() {\n+int launch(int) {\n```\n",
           testing::FakeReply("measured 1.2"));
  CHECK(played.turn.evaluation.outcome == "parse_failed");
  CHECK(Has(played.next_prompt,
            "hunk 1 of the diff does not apply: behind line 1 of the kernel, `// measured 1.2`, it "
            "expects `int launch() {` and not `extern \"C\" void launch("));
  CHECK(Has(played.next_prompt, "-int launch() {\n+int launch(int) {\n"));
}

}  // namespace kevin
