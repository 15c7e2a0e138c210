#include "policies/local/train/state_layout.h"

#include <ATen/core/Tensor.h>

namespace kevin::local {
namespace {

constexpr int64_t kBucketNumbers = int64_t{32} << 20;  // 128 MiB of gradients
constexpr char kLayers[] = "model.layers.";

// "layer12.matrices." of "model.layers.12.mlp.down_proj.weight"
std::string PieceOfLayer(const std::string& name, bool is_matrix) {
  const size_t begin = sizeof(kLayers) - 1;
  return "layer" + name.substr(begin, name.find('.', begin) - begin) +
         (is_matrix ? ".matrices." : ".vectors.");
}

}  // namespace

bool IsInLayer(const NamedParameter& parameter) { return parameter.name.starts_with(kLayers); }

StateLayout LayoutOf(const std::vector<NamedParameter>& parameters, bool is_sharded) {
  StateLayout layout;
  std::string open[2];  // buckets of vectors, of matrices
  int buckets = 0;
  for (const NamedParameter& p : parameters) {
    const bool is_matrix = p.value.dim() > 1;
    std::string piece;
    if (is_sharded && IsInLayer(p)) {
      piece = PieceOfLayer(p.name, is_matrix);
    } else {
      std::string& bucket = open[is_matrix];
      if (bucket.empty() || layout.sizes[bucket] >= kBucketNumbers)
        bucket = "bucket" + std::to_string(buckets++) + ".";
      piece = bucket;
    }
    int64_t& size = layout.sizes[piece];
    layout.places[p.name] = {piece, size};
    size += p.value.numel();
  }
  return layout;
}

}  // namespace kevin::local
