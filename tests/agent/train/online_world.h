#pragma once
// A random network whose tokens are whole kernels, and `kevin train --online` with it as a user runs it. Some of its eight
// kernels are correct for level1/19, which only trying tells.

#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/agent/train/byte_tokenizer.h"
#include "tests/folders.h"
#include "tests/policies/local/formula_model.h"
#include "tests/trajectories/sample_records.h"

namespace kevin {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kBytes = 256, kAnswers = 8, kVocabulary = kBytes + kAnswers + 1;
// Much slower than the reference, so that few pairs settle it.
constexpr const char* kRight =
    "\n#include <cstddef>\nextern \"C\" void launch(const float* x, float* out) {\n"
    "  for (long first = 0; first < 16; ++first)\n"
    "    for (long i = first; i < B * N; i += 16) out[i] = x[i] > 0 ? x[i] : 0;\n}\n```\n";

inline std::string ReadAll(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

inline std::vector<json> Lines(const fs::path& path) {
  std::vector<json> all;
  std::ifstream lines(path);
  for (std::string line; std::getline(lines, line);) all.push_back(json::parse(line));
  return all;
}

inline std::string Answer(int i, const std::string& kind, bool is_right) {
  const std::string number = std::to_string(i);
  if (kind == "modelnew") {
    return "```python\n# number " + number +
           "\nimport torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n"
           "        return torch.relu(x) + " +
           (is_right ? "0.0" : number + ".5") + "\n```\n";
  }
  if (!is_right) return "```cpp\nthis is no kernel, number " + number + "\n```\n";
  return "```cpp\n// number " + number + std::string(kRight);
}

inline void WriteTokenizer(const fs::path& file, const std::string& kind, const std::set<int>& right) {
  json tokens = json::array();
  const auto add = [&](int id, const std::string& content, bool special) {
    tokens.push_back({{"id", id},
                      {"content", content},
                      {"special", special},
                      {"single_word", false},
                      {"lstrip", false},
                      {"rstrip", false},
                      {"normalized", false}});
  };
  for (int i = 0; i < kAnswers; ++i) add(kBytes + i, Answer(i, kind, right.contains(i)), false);
  add(kVocabulary - 1, "<|end|>", true);
  std::ofstream(file) << ByteTokenizer(tokens).dump();
}

// Every prompt is "?". Nothing is added to its embedding at first, so that its hidden state is known, and the
// head's rows of the bytes and of the end are made to shun it: what is drawn is one of the answers.
inline void WriteWeights(const fs::path& folder, const local::ModelConfig& config) {
  std::vector<float> prompt =
      local::FormulaWeights("model.embed_tokens.weight", kVocabulary * config.hidden, 0.6f);
  prompt.erase(prompt.begin(), prompt.begin() + '?' * config.hidden);
  prompt.resize(static_cast<size_t>(config.hidden));
  double squares = 0;
  for (const float v : prompt) squares += static_cast<double>(v) * static_cast<double>(v);
  const auto scale = static_cast<float>(-0.5 / std::sqrt(squares / config.hidden));
  std::vector<local::TensorToWrite> tensors;
  std::vector<float> values;  // of the one that is being written
  for (const local::ExpectedTensor& t : local::ExpectedTensors(config)) {
    tensors.push_back({t.name, local::NumberType::kF32, t.shape, [&values, &prompt, scale, t] {
                         values = local::FormulaWeights(t.name, t.Count(), 0.6f);
                         if (t.name.ends_with("o_proj.weight") || t.name.ends_with("down_proj.weight"))
                           std::fill(values.begin(), values.end(), 0.0f);
                         for (size_t i = 0; t.name == "lm_head.weight" && i < values.size(); ++i) {
                           const size_t token = i / prompt.size();
                           if (token < kBytes || token == kVocabulary - 1)
                             values[i] = scale * prompt[i % prompt.size()];
                         }
                         return std::as_bytes(std::span(values));
                       }});
  }
  local::WriteTensors(folder, tensors);
}

inline void MakeModel(const fs::path& folder, const std::string& kind, const std::set<int>& right,
                      int kv_heads) {
  local::ModelConfig config;
  config.family = local::ModelFamily::kQwen2;
  config.hidden = 16, config.layers = 2, config.heads = 2, config.kv_heads = kv_heads, config.head_dim = 8;
  config.ffn = 32, config.vocabulary = kVocabulary, config.context = 4096, config.qkv_bias = true;
  config.dtype = local::NumberType::kF32;
  fs::create_directories(folder);
  std::ofstream(folder / "config.json") << local::ConfigJson(config);
  WriteWeights(folder, config);
  WriteTokenizer(folder / "tokenizer.json", kind, right);
  std::ofstream(folder / "chat_template.jinja") << "?";
}

class World {
 public:
  // `kind`: of the kernels that are its tokens. `right`: which of them are correct. Before it learns, the model draws 1
  // with 0.33, 5 with 0.17, and 3 and 7 together with 0.07.
  explicit World(const std::string& kind = "cpp", const std::set<int>& right = {3, 7}, int kv_heads = 1) {
    MakeModel(folder_ / "model", kind, right, kv_heads);
  }
  fs::path operator/(const std::string& name) const { return folder_ / name; }

  // With its standard output in out.jsonl and its standard error in errors.txt.
  std::string Command(const std::string& arguments) const {
    return "cd " + folder_.path().string() + " && exec " + BinaryFolder().string() +
           "/bin/kevin train --json --device cpu --dtype float32 --online --judge cpu --threads 1 --isolation reduced "
           "--diagnose off --keep-cut-off --model model " +
           (arguments.find("--max-tokens") == std::string::npos ? "--max-tokens 1 " : "") + arguments +
           " >>out.jsonl 2>>errors.txt </dev/null";
  }
  int Train(const std::string& arguments) const {
    fs::remove(folder_ / "out.jsonl"), fs::remove(folder_ / "errors.txt");
    const int status = std::system(Command(arguments).c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::vector<json> Events(const std::string& kind) const {
    std::vector<json> found;
    for (json& event : Lines(folder_ / "out.jsonl")) {
      if (event.at("event") == kind) found.push_back(std::move(event));
    }
    return found;
  }
  // Of a collection of the run in "run", so far.
  int64_t TurnsOf(const std::string& collection) const {
    if (ReadAll(folder_ / "run/run.json").find('"' + collection + '"') == std::string::npos) return 0;
    Database database(folder_ / "kevin.db", Database::Access::kReadOnly, 5000);
    return database.QueryInteger("SELECT count(*) FROM turns");
  }
  std::string Errors() const { return ReadAll(folder_ / "errors.txt"); }

 private:
  TemporaryFolder folder_;
};

inline const std::string kSmall =
    "--suite level1/19 --turns 2 --learning-rate 1e-2 --max-grad-norm 0.5 "
    "--constant-tokens 1 ";

}  // namespace kevin
