// The start of real_loop.sh: a tiny model with random weights, and a teacher that answers easy problems with
// short kernels, each time one of four at random: fast, slow, incorrect, not compiling. `kevin collect`
// judges them, `kevin train --algorithm sft` trains the model on them, and online training then prefers those
// that pay.
//
//   toy_teacher FOLDER [SEED]
//
// writes FOLDER/model, prints the URL of its OpenAI API and serves until its standard input ends.

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <limits>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "tests/agent/train/byte_tokenizer.h"
#include "tests/policies/local/formula_model.h"
#include "tests/support/mock_api.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

constexpr int kEnd = 256;  // the token after the 256 bytes

// The problem's name and, from the second turn on, the beginning of the feedback on the last attempt: a model
// with one token for each byte cannot use the rules.
constexpr const char* kTemplate = R"({%- set text = messages[-1].content -%}
{%- set name = text.split("\n")[0].replace("Optimise this operation: ", "") -%}
{%- set before = "" -%}
{%- if "### Turn" in text -%}
{%- set parts = text.split("### Turn")[-1].split("```") -%}
{%- set before = parts[2] if parts | length > 2 else parts[0].split("\n\n")[1] -%}
{%- endif -%}
{{ name }}
{{ before.strip()[:44] }}
)";

// Four kernels for each problem: fast, slow, incorrect, not compiling. They differ early, so that few tokens
// decide. $R are a product's rows, $C its columns, $K its terms, $A and $B its factors.
constexpr const char* kProducts[] = {
    R"(  for (long i = 0; i < $R; ++i) {
    for (long j = 0; j < $C; ++j) c[i * $C + j] = 0;
    for (long k = 0; k < $K; ++k)
      for (long j = 0; j < $C; ++j) c[i * $C + j] += $A * $B;
  }
)",
    R"(  for (int j = 0; j < $C; ++j)
    for (int i = 0; i < $R; ++i) {
      float s = 0;
      for (int k = 0; k < $K; ++k) s += $A * $B;
      c[i * $C + j] = s;
    }
)",
    R"(  int i, j, k;
  for (i = 0; i < $R; ++i)
    for (j = 0; j < $C; ++j) {
      float s = 0;
      for (k = 1; k < $K; ++k) s += $A * $B;
      c[i * $C + j] = s;
    }
)",
    R"(  for (auto i = 0; i < $R; ++i)
    for (auto j = 0; j < $C; ++j) c[i][j] = a[i] * b[j];
)"};

constexpr const char* kFunctions[] = {
    R"(  for (long i = 0; i < $R; ++i) {
    float v = x[i];
    out[i] = v / (1 + __builtin_expf(-1.5957691f * (v + 0.044715f * v * v * v)));
  }
)",
    R"(  for (int i = 0; i < $R; ++i) {
    double v = x[i];
    out[i] = v / 2 * (1 + __builtin_tanh(0.7978845608 * (v + 0.044715 * __builtin_pow(v, 3))));
  }
)",
    R"(  int i;
  for (i = 0; i < $R; ++i) {
    float v = x[i];
    out[i] = v / (1 + __builtin_expf(-1.702f * v));
  }
)",
    R"(  for (auto i = 0; i < $R; ++i) out[i] = gelu(x[i]);
)"};

// A product c[i, j] = a[i, k] * b[k, j], or, without factors, a function of each element.
struct Task {
  const char *problem, *rows, *columns, *terms, *a, *b;
};

constexpr Task kTasks[] = {
    {"level1/3", "B * M", "N", "K", "a[i * K + k]", "b[(i / M * K + k) * N + j]"},
    {"level1/7", "M", "N", "K", "a[i * K + k]", "b[k * N + j]"},
    {"level1/10", "N * M", "L", "K", "a[i * K + k]", "b[k * L + j]"},
    {"level1/11", "B * I * J", "N", "K", "a[i * K + k]", "b[k * N + j]"},
    {"level1/88", "B * N", "", "", "", ""},
};

std::string Answer(const Task& task, size_t kernel) {
  const bool is_product = *task.a != 0;
  const char* text = is_product ? kProducts[kernel] : kFunctions[kernel];
  std::string body;
  for (; *text != 0; ++text) {
    if (*text != '$') {
      body += *text;
      continue;
    }
    const char name = *++text;
    body += name == 'R'   ? task.rows
            : name == 'C' ? task.columns
            : name == 'K' ? task.terms
            : name == 'A' ? task.a
                          : task.b;
  }
  return fmt::format("```cpp\nextern \"C\" void launch({}) {{\n{}}}\n```\n",
                     is_product ? "const float* a, const float* b, float* c" : "const float* x, float* out",
                     body);
}

void WriteModel(const fs::path& folder) {
  local::ModelConfig config;
  config.family = local::ModelFamily::kQwen2;
  config.hidden = 160, config.layers = 4, config.heads = 4, config.kv_heads = 4, config.head_dim = 40;
  config.ffn = 448, config.vocabulary = kEnd + 1, config.context = 4096, config.qkv_bias = true;
  config.dtype = local::NumberType::kF32;
  config.generation.end_tokens = {kEnd};
  local::WriteFormulaModel(folder, config, 0.14f);
  const auto write = [&](const char* name, const std::string& text) { std::ofstream(folder / name) << text; };
  write("generation_config.json", local::GenerationConfigJson(config));
  write("chat_template.jinja", kTemplate);
  write("tokenizer.json", ByteTokenizer({{{"id", kEnd},
                                          {"content", "<|end|>"},
                                          {"special", true},
                                          {"single_word", false},
                                          {"lstrip", false},
                                          {"rstrip", false},
                                          {"normalized", false}}})
                              .dump());
}

class Teacher {
 public:
  explicit Teacher(uint64_t seed) : random_(seed) {}

  MockReply operator()(const MockRequest& request) {
    MockAnswer answer;
    answer.model = "teacher";
    for (const Task& task : kTasks) {
      if (request.body.find(fmt::format("({})", task.problem)) == std::string::npos) continue;
      const std::lock_guard lock(mutex_);
      answer.text = Answer(task, random_() % std::size(kProducts));
    }
    return ReplyTo(request, answer);
  }

 private:
  std::mutex mutex_;
  std::mt19937_64 random_;
};

int Main(int argc, char** argv) {
  if (argc < 2) {
    std::fputs("usage: toy_teacher FOLDER [SEED]\n", stderr);
    return 2;
  }
  WriteModel(fs::path(argv[1]) / "model");
  Teacher teacher(argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1);
  const MockServer server([&](const MockRequest& request) { return teacher(request); });
  std::printf("%s/v1\n", server.Url().c_str());
  std::fflush(stdout);
  std::cin.ignore(std::numeric_limits<std::streamsize>::max());
  return 0;
}

}  // namespace
}  // namespace kevin

int main(int argc, char** argv) { return kevin::Main(argc, argv); }
