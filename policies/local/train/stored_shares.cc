#include "policies/local/train/stored_shares.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "env/error.h"

namespace kevin::local {
namespace {

constexpr const char* kKinds[] = {"weights", "first", "second"};

int64_t NumbersOf(const StoredTensor& tensor) {
  return static_cast<int64_t>(tensor.bytes.size() / sizeof(float));
}

[[noreturn]] void OtherParameters() {
  throw Error(ExitCode::kBadRequest, "the checkpoint's optimiser is of a model with other parameters",
              "resume with the model and options that it was made with");
}

}  // namespace

StoredShares::StoredShares(std::filesystem::path folder, int ranks, int reader, StateLayout layout)
    : folder_(std::move(folder)),
      ranks_(ranks),
      own_(std::min(reader, ranks - 1)),
      layout_(std::move(layout)) {}

std::string StoredShares::FileOf(int rank, int ranks) {
  return fmt::format("optimizer-{}-of-{}", rank, ranks);
}

const Checkpoint& StoredShares::File(int rank) {
  const auto known = files_.find(rank);
  if (known != files_.end()) return known->second;
  try {
    return files_.emplace(rank, Checkpoint::Open(folder_ / (FileOf(rank, ranks_) + ".safetensors")))
        .first->second;
  } catch (const Error& error) {
    throw Error(error.code(), error.what(), kRemoveCheckpoint);
  }
}

const StateLayout::Place& StoredShares::PlaceOf(const std::string& parameter) const {
  const auto found = layout_.places.find(parameter);
  if (found == layout_.places.end()) OtherParameters();
  return found->second;
}

void StoredShares::DoesNotFit(int rank, const std::string& name) const {
  throw Error(
      ExitCode::kBadRequest,
      fmt::format("{}: the share of rank {} does not fit the others at `{}`", folder_.string(), rank, name),
      kRemoveCheckpoint);
}

// Numbers of a piece that each rank has.
int64_t StoredShares::ShareOfPiece(const std::string& piece) {
  const int64_t share = (layout_.sizes.at(piece) + ranks_ - 1) / ranks_;
  const StoredTensor* own = File(own_).Find(piece + kKinds[0]);
  if (own == nullptr || NumbersOf(*own) != share) OtherParameters();
  return share;
}

void StoredShares::Read(const std::string& piece, const char* kind, int64_t first, at::Tensor to) {
  const std::string name = piece + kind;
  const int64_t each = ShareOfPiece(piece), end = first + to.numel();
  for (int64_t at = first; at < end;) {
    const int rank = static_cast<int>(at / each);
    const StoredTensor* share = File(rank).Find(name);
    if (share == nullptr || share->type != NumberType::kF32 || NumbersOf(*share) != each)
      DoesNotFit(rank, name);
    const int64_t begin = at - rank * each, here = std::min(each - begin, end - at);
    at::Tensor numbers = at::empty({here}, at::kFloat);
    std::memcpy(numbers.mutable_data_ptr(), share->bytes.data() + static_cast<size_t>(begin) * sizeof(float),
                numbers.nbytes());
    to.narrow(0, at - first, here).copy_(numbers);
    at += here;
  }
}

void StoredShares::ReadShare(const Parts& parts, const Ranks& ranks, const std::array<at::Tensor*, 3>& own) {
  const int64_t share = own[0]->numel(), first = share * ranks.Rank(), end = first + share;
  for (at::Tensor* tensor : own) tensor->zero_();
  int64_t begin = 0;  // of the part
  for (const auto& [parameter, size] : parts) {
    const int64_t from = std::max(first, begin), to = std::min(end, begin + size);
    const StateLayout::Place& place = PlaceOf(parameter);
    ShareOfPiece(place.piece);  // also where this rank needs nothing of it
    for (size_t i = 0; i < own.size() && from < to; ++i)
      Read(place.piece, kKinds[i], place.begin + from - begin, own[i]->narrow(0, from - first, to - from));
    begin += size;
  }
}

double StoredShares::StepsOf(const std::string& parameter) {
  const std::string name = PlaceOf(parameter).piece + "steps";
  const at::Tensor steps = Common(name);
  if (steps.scalar_type() != at::kFloat || steps.numel() != 1) DoesNotFit(own_, name);
  return steps.item<double>();
}

at::Tensor StoredShares::Common(const std::string& name) {
  const StoredTensor* own = File(own_).Find(name);
  if (own == nullptr)
    throw Error(ExitCode::kBadRequest, fmt::format("{} has no `{}`", folder_.string(), name),
                kRemoveCheckpoint);
  at::Tensor tensor = at::empty(own->shape, own->type == NumberType::kU8 ? at::kByte : at::kFloat);
  if (tensor.nbytes() != own->bytes.size()) DoesNotFit(own_, name);
  std::memcpy(tensor.mutable_data_ptr(), own->bytes.data(), own->bytes.size());
  return tensor;
}

}  // namespace kevin::local
