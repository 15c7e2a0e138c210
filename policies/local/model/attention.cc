#include "policies/local/model/attention.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "policies/local/model/cpu_rows.h"

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

// The mask of the last `queries` of `keys` tokens; undefined where the plain causal flag is equivalent.
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
    // Attention is causal, so that the padding after the end of a sequence is never read.
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

namespace {

// From this length on, matrix products over gathered keys are faster.
constexpr int64_t kRowsAtMost = 4;

CachedLayer LayerOf(const PagedCache& cache, int layer) {
  float* numbers = cache.numbers.mutable_data_ptr<float>();
  const int64_t* strides = cache.numbers.strides().data();
  return {numbers + layer * strides[0], numbers + layer * strides[0] + strides[1], cache.page_tokens,
          cache.numbers.size(4), cache.numbers.size(5)};
}

// Of the tokens [from, to) of a sequence.
void AddSlots(const PagedSequence& sequence, int64_t from, int64_t to, int64_t page_tokens,
              std::vector<int64_t>& slots) {
  for (int64_t position = from; position < to; ++position)
    slots.push_back(sequence.pages[static_cast<size_t>(position / page_tokens)] * page_tokens +
                    position % page_tokens);
}

at::Tensor ToDevice(const std::vector<int64_t>& numbers, at::Device device) {
  return at::tensor(numbers, at::kLong).to(device);
}

}  // namespace

PagedAttention::PagedAttention(const PagedCache& cache, std::vector<PagedSequence> sequences)
    : cache_(cache), sequences_(std::move(sequences)) {
  const bool floats = cache.numbers.is_cpu() && cache.numbers.scalar_type() == at::kFloat;
  by_rows_ = floats && std::all_of(sequences_.begin(), sequences_.end(),
                                   [](const PagedSequence& s) { return s.tokens <= kRowsAtMost; });
  if (by_rows_) return;
  std::vector<int64_t> fresh, all, query_starts = {0}, key_starts = {0};
  for (const PagedSequence& sequence : sequences_) {
    AddSlots(sequence, sequence.position, sequence.Length(), cache.page_tokens, fresh);
    AddSlots(sequence, 0, sequence.Length(), cache.page_tokens, all);
    query_starts.push_back(static_cast<int64_t>(fresh.size()));
    key_starts.push_back(static_cast<int64_t>(all.size()));
  }
  rows_.emplace(std::move(query_starts), std::move(key_starts), cache.numbers.device());
  new_slots_ = ToDevice(fresh, cache.numbers.device());
  all_first_ = all.front();
  all_count_ = static_cast<int64_t>(all.size());
  const bool in_order = std::adjacent_find(all.begin(), all.end(),
                                           [](int64_t a, int64_t b) { return b != a + 1; }) == all.end();
  if (!in_order) all_slots_ = ToDevice(all, cache.numbers.device());
}

at::Tensor PagedAttention::Attend(int layer, const at::Tensor& q, const at::Tensor& k,
                                  const at::Tensor& v) const {
  if (by_rows_) {
    WriteByRows(layer, k, v);
    return AttendByRows(layer, q);
  }
  Write(layer, k, v);
  if (sequences_.size() == 1 && sequences_[0].position == 0) {
    const at::Tensor attended = AttendLongSequence(q, k, v);
    if (attended.defined()) return attended;
  }
  return AttendGathered(layer, q);
}

void PagedAttention::WriteByRows(int layer, const at::Tensor& k, const at::Tensor& v) const {
  const CachedLayer cached = LayerOf(cache_, layer);
  const size_t bytes = static_cast<size_t>(cached.TokenSize()) * sizeof(float);
  for (const PagedSequence& sequence : sequences_) {
    for (int64_t token = 0; token < sequence.tokens; ++token) {
      const int64_t row = sequence.first_row + token;
      const int64_t place = cached.Place(sequence.pages, sequence.position + token);
      std::memcpy(cached.keys + place, k.const_data_ptr<float>() + row * k.stride(0), bytes);
      std::memcpy(cached.values + place, v.const_data_ptr<float>() + row * v.stride(0), bytes);
    }
  }
}

at::Tensor PagedAttention::AttendByRows(int layer, const at::Tensor& q) const {
  const CachedLayer cached = LayerOf(cache_, layer);
  const int64_t heads = q.size(1), dim = q.size(2), group = heads / cached.kv_heads;
  at::Tensor out = at::empty({q.size(0), heads * dim}, q.options());
  std::vector<const PagedSequence*> owners;  // of each row
  for (const PagedSequence& sequence : sequences_) owners.insert(owners.end(), sequence.tokens, &sequence);
  const float* queries = q.const_data_ptr<float>();
  float* results = out.mutable_data_ptr<float>();
  const int64_t stride = q.stride(0);
  at::parallel_for(0, q.size(0) * cached.kv_heads, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> scores;
    for (int64_t task = begin; task < end; ++task) {
      const int64_t row = task / cached.kv_heads, head = task % cached.kv_heads;
      const PagedSequence& sequence = *owners[static_cast<size_t>(row)];
      const int64_t length = sequence.position + row - sequence.first_row + 1;
      scores.resize(static_cast<size_t>(group * length));
      AttendHeads(cached, sequence.pages, length, head, group, queries + row * stride + head * group * dim,
                  scores.data(), results + (row * heads + head * group) * dim);
    }
  });
  return out;
}

void PagedAttention::Write(int layer, const at::Tensor& k, const at::Tensor& v) const {
  const int64_t slots = static_cast<int64_t>(cache_.pages) * cache_.page_tokens;
  for (const int which : {0, 1}) {
    at::Tensor place = cache_.numbers.select(0, layer).select(0, which).view({slots, k.size(1), k.size(2)});
    place.index_copy_(0, new_slots_, which == 0 ? k : v);
  }
}

at::Tensor PagedAttention::Gathered(int layer, int which) const {
  const at::Tensor place = cache_.numbers.select(0, layer).select(0, which).flatten(0, 1);
  if (!all_slots_.defined()) return place.narrow(0, all_first_, all_count_);
  return place.index_select(0, all_slots_);
}

at::Tensor PagedAttention::AttendGathered(int layer, const at::Tensor& q) const {
  return AttendRagged(q, Gathered(layer, 0), Gathered(layer, 1), *rows_);
}

}  // namespace kevin::local
