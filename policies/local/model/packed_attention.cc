#include "policies/local/model/packed_attention.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <atomic>

namespace kevin::local {
namespace {

int64_t Longest(const std::vector<int64_t>& starts) {
  int64_t longest = 0;
  for (size_t i = 0; i + 1 < starts.size(); ++i) longest = std::max(longest, starts[i + 1] - starts[i]);
  return longest;
}

at::Tensor Offsets(const std::vector<int64_t>& starts, at::Device device) {
  return at::tensor(starts, at::kLong).to(at::kInt).to(device);
}

// [1, heads, rows, d], as torch's attention wants it.
at::Tensor HeadsFirst(const at::Tensor& x, int64_t first, int64_t rows) {
  return x.narrow(0, first, rows).transpose(0, 1).unsqueeze(0);
}

// Of `queries` last tokens over `keys` tokens; nothing where the plain causal flag says the same.
std::optional<at::Tensor> Mask(int64_t queries, int64_t keys, at::Device device) {
  if (queries == keys || queries == 1) return std::nullopt;
  return at::ones({queries, keys}, at::TensorOptions(at::kBool).device(device)).tril(keys - queries);
}

// [rows, heads, d] with zeros below, heads first.
at::Tensor PaddedHeads(const at::Tensor& x, int64_t rows) {
  if (x.size(0) == rows) return HeadsFirst(x, 0, rows);
  at::Tensor padded = at::empty({rows, x.size(1), x.size(2)}, x.options());
  padded.narrow(0, 0, x.size(0)).copy_(x);
  padded.narrow(0, x.size(0), rows - x.size(0)).zero_();
  return HeadsFirst(padded, 0, rows);
}

}  // namespace

at::Tensor AttendLongSequence(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  constexpr int64_t kLeast = 1024, kRounded = 512;
  static std::atomic<bool> is_there = true;
  const int64_t tokens = q.size(0), rows = (tokens + kRounded - 1) / kRounded * kRounded;
  if (!is_there || !q.is_cuda() || q.scalar_type() == at::kFloat || tokens < kLeast) return {};
  try {
    // Nothing looks ahead, so that what is below a sequence's end stays unseen.
    const at::Tensor output = std::get<0>(at::_scaled_dot_product_cudnn_attention(
        PaddedHeads(q, rows), PaddedHeads(k, rows), PaddedHeads(v, rows), std::nullopt,
        /*compute_log_sumexp=*/false, /*dropout_p=*/0.0, /*is_causal=*/true, /*return_debug_mask=*/false));
    return output.squeeze(0).transpose(0, 1).narrow(0, 0, tokens).reshape({tokens, -1});
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::Error&) {
    is_there = false;
    return {};
  }
}

RaggedRows::RaggedRows(std::vector<int64_t> of_queries, std::vector<int64_t> of_keys, at::Device device)
    : query_starts(std::move(of_queries)), key_starts(std::move(of_keys)) {
  if (!device.is_cuda()) return;
  query_offsets = Offsets(query_starts, device);
  key_offsets = query_starts == key_starts ? query_offsets : Offsets(key_starts, device);
}

RaggedRows PackedRows(const std::vector<int64_t>& starts, at::Device device) {
  return {starts, starts, device};
}

at::Tensor AttendRagged(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const RaggedRows& rows) {
  if (q.is_cuda() && q.scalar_type() != at::kFloat) {
    const at::Tensor output = std::get<0>(at::_flash_attention_forward(
        q, k, v, rows.query_offsets, rows.key_offsets, Longest(rows.query_starts), Longest(rows.key_starts),
        /*dropout_p=*/0.0, /*is_causal=*/true, /*return_debug_mask=*/false));
    return output.reshape({q.size(0), -1});
  }
  const std::vector<int64_t>&query_starts = rows.query_starts, &key_starts = rows.key_starts;
  std::vector<at::Tensor> outputs;
  for (size_t i = 0; i + 1 < query_starts.size(); ++i) {
    const int64_t queries = query_starts[i + 1] - query_starts[i], keys = key_starts[i + 1] - key_starts[i];
    if (queries == 0) continue;
    const at::Tensor output = at::scaled_dot_product_attention(
        HeadsFirst(q, query_starts[i], queries), HeadsFirst(k, key_starts[i], keys),
        HeadsFirst(v, key_starts[i], keys), Mask(queries, keys, q.device()), /*dropout_p=*/0.0,
        /*is_causal=*/queries == keys, /*scale=*/std::nullopt, /*enable_gqa=*/q.size(1) != k.size(1));
    outputs.push_back(output.squeeze(0).transpose(0, 1).reshape({queries, -1}));
  }
  return outputs.size() == 1 ? outputs[0] : at::cat(outputs, 0);
}

}  // namespace kevin::local
