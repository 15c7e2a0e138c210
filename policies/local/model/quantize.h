#pragma once
// Weights in 8 and 4 bits. Matrices are dequantised into the compute type and then multiplied as usual, so
// what quantisation changes is the weights alone.
//
// int8: per row, scale = largest magnitude / 127, codes rounded to nearest (ties to even).
// nf4: per block of 64 numbers of the flattened rows, scale = largest magnitude; each number divided by it
// becomes the nearest of 16 levels (NF4 of the QLoRA paper), on a tie the lower. nf4-double keeps the scales
// less their mean in 8 bits of the "dynamic" map, per group of 256. Codes and values are those of
// bitsandbytes.

#include <ATen/core/Tensor.h>

#include "policies/local/model/weights.h"

namespace kevin::local {

// `matrix` is [rows, columns] of any floating type; `kind` is not kNone.
QuantizedMatrix Quantize(const at::Tensor& matrix, Quantization kind);
// [rows, columns] in `type`.
at::Tensor Dequantize(const QuantizedMatrix& matrix, at::ScalarType type);

// The 16 levels and the 256 values of the dynamic map, in order; float, on `device`.
at::Tensor Nf4Levels(at::Device device);
at::Tensor DynamicMap(at::Device device);

}  // namespace kevin::local
