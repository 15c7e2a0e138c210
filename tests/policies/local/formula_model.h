#pragma once
// A model's folder whose weights come from a formula: equal in goldens/grpo_step.py, so that none are stored.

#include <filesystem>
#include <string>
#include <vector>

#include "policies/local/files/safetensors.h"
#include "policies/local/files/tensor_list.h"

namespace kevin::local {

// Norms 1; else numbers from -scale / 2 to scale / 2 by a linear congruence that begins at the name's hash.
inline std::vector<float> FormulaWeights(const std::string& name, int64_t count, float scale) {
  std::vector<float> values(static_cast<size_t>(count), 1);
  if (name.ends_with("norm.weight")) return values;
  uint64_t state = 14695981039346656037u;
  for (const char byte : name) state = (state ^ static_cast<uint8_t>(byte)) * 1099511628211u;
  for (float& v : values) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    v = (static_cast<float>(state >> 40) / static_cast<float>(1 << 24) - 0.5f) * scale;
  }
  return values;
}

inline void WriteFormulaModel(const std::filesystem::path& folder, const ModelConfig& config, float scale) {
  NewFolder made(folder);
  made.WriteText("config.json", ConfigJson(config));
  std::vector<TensorToWrite> tensors;
  std::vector<float> values;  // of the one that is being written
  for (const ExpectedTensor& t : ExpectedTensors(config)) {
    tensors.push_back({t.name, NumberType::kF32, t.shape, [&values, t, scale] {
                         values = FormulaWeights(t.name, t.Count(), scale);
                         return std::as_bytes(std::span(values));
                       }});
  }
  WriteTensors(made.Path(), tensors);
  made.Commit();
}

}  // namespace kevin::local
