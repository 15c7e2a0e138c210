#pragma once
// The weights of a model in memory, their quantised forms, and the paged cache: the data that our own kernels
// work on. Names beside the fields are those of the checkpoint. Unless said otherwise tensors are contiguous,
// on the model's device, in its compute type. Only the trainer writes to them, between steps; addresses never
// change after loading.

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "policies/local/files/model_config.h"
#include "policies/local/files/tensor_list.h"

namespace kevin::local {

// One matrix [rows, columns] in 8 or 4 bits. Blocks run over the flattened rows.
struct QuantizedMatrix {
  Quantization kind = Quantization::kNone;
  int64_t rows = 0, columns = 0;
  at::Tensor codes;   // int8: int8 [rows, columns]; nf4: uint8 [ceil(rows * columns / 64) * 32], the first
                      // number of a byte in its high half
  at::Tensor scales;  // float. int8: [rows]; nf4: [blocks of 64], undefined where double
  // nf4-double: the blocks' scales again in 8 bits: offset + scale_map[scale_codes[b]] * group_scales[b /
  // 256]
  at::Tensor scale_codes;   // uint8 [blocks]
  at::Tensor group_scales;  // float [groups of 256 blocks]
  at::Tensor scale_offset;  // float [1]
};

// One projection of the checkpoint: some rows of a Linear.
struct Projection {
  std::string name;  // "model.layers.0.self_attn.q_proj", no ".weight"
  int64_t first_row = 0, rows = 0;
  at::Tensor weight;  // view of the Linear's memory, the leaf that is trained; undefined where quantised
  at::Tensor bias;    // likewise; undefined: no bias
  QuantizedMatrix quantized;
  // LoRA: y += scale * (x A^T) B^T; undefined where none is attached. A is [rank, in], B [rows, rank].
  at::Tensor lora_a, lora_b;
};

// y = x weight^T + bias, for one projection or several stacked ones.
struct Linear {
  int64_t in = 0, out = 0;
  at::Tensor weight;  // [out, in]; undefined where quantised: the parts then hold the codes
  at::Tensor bias;    // [out] or undefined
  std::vector<Projection> parts;
  double lora_scale = 0;  // alpha / rank

  bool IsQuantized() const { return !weight.defined(); }
  bool HasAdapters() const { return lora_scale != 0; }
};

// LoRA of one projection of all experts: y_e += scale * (x A_e^T) B_e^T; undefined where none is attached.
struct ExpertAdapters {
  at::Tensor a;  // [experts, rank, in]
  at::Tensor b;  // [experts, out, rank]
};

// The experts of a sparse layer, stacked.
struct Experts {
  at::Tensor router;  // [experts, hidden]: mlp.gate
  at::Tensor
      gate_up;      // [experts, 2 * expert_ffn, hidden]: gate_proj, then up_proj; undefined where quantised
  at::Tensor down;  // [experts, hidden, expert_ffn]
  std::vector<QuantizedMatrix> quantized_gate, quantized_up, quantized_down;  // of each expert
  ExpertAdapters lora_gate, lora_up, lora_down;
  double lora_scale = 0;

  bool HasAdapters() const { return lora_scale != 0; }
};

struct Layer {
  at::Tensor input_norm;      // [hidden]: input_layernorm
  Linear qkv;                 // rows: q (heads * head_dim), k, v (kv_heads * head_dim each)
  at::Tensor q_norm, k_norm;  // [head_dim] or undefined
  Linear o;
  at::Tensor ffn_norm;  // [hidden]: post_attention_layernorm
  Linear gate_up;       // rows: gate (ffn), up (ffn); unused where the layer is sparse
  Linear down;
  Experts experts;  // router undefined where the layer is dense
};

struct Weights {
  at::Tensor embedding;  // [vocabulary, hidden]
  std::vector<Layer> layers;
  at::Tensor norm;  // [hidden]
  at::Tensor head;  // [vocabulary, hidden]; the same tensor as the embedding where tied
  // Angle of pair (i, i + head_dim / 2) at position p: p * rope_frequencies[i]; cosine and sine are
  // multiplied by rope_factor. The tables hold both for every position of the context.
  at::Tensor rope_frequencies;  // float [head_dim / 2]
  float rope_factor = 1;
  at::Tensor rope_cos, rope_sin;  // float [context, head_dim / 2]
};

// Keys (after norm and rotation) and values of every layer: numbers[layer][0 keys, 1 values][page][slot]
// [kv_head][i], contiguous. Token p of a sequence lies in slot p % page_tokens of its page p / page_tokens.
struct PagedCache {
  at::Tensor numbers;  // [layers, 2, pages, page_tokens, kv_heads, head_dim], the compute type
  int page_tokens = 0;
  int pages = 0;
};

// Quantisation to 8 and 4 bits. Matrices are dequantised into the compute type before each product, so
// quantisation changes only the weights.
//
// int8: per row, scale = largest magnitude / 127, codes rounded to nearest (ties to even).
// nf4: per block of 64 numbers of the flattened rows, scale = largest magnitude; each number divided by it
// becomes the nearest of 16 levels (NF4 of the QLoRA paper), on a tie the lower one. nf4-double stores the
// scales minus their mean in 8 bits of the "dynamic" map, per group of 256. Codes and values are equal to
// those of bitsandbytes.
//
// `matrix` is [rows, columns] of any floating type; `kind` is not kNone.
QuantizedMatrix Quantize(const at::Tensor& matrix, Quantization kind);
// [rows, columns] in `type`.
at::Tensor Dequantize(const QuantizedMatrix& matrix, at::ScalarType type);

// The 16 levels and the 256 values of the dynamic map, in order; float, on `device`.
at::Tensor Nf4Levels(at::Device device);
at::Tensor DynamicMap(at::Device device);

}  // namespace kevin::local
