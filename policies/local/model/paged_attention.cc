#include "policies/local/model/paged_attention.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>

#include "policies/local/model/cpu_rows.h"

namespace kevin::local {
namespace {

// Above so many tokens in a row, matrix products over gathered keys are the quicker way.
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
