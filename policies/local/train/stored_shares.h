#pragma once
// The optimiser's state in a checkpoint: one file for each rank that wrote it, each with its share of every piece
// (state_layout.h). Reads ranges of the whole, so that a rank reads its own share alone, also where another number of
// ranks continues, or with sharded layers instead of whole ones.

#include <ATen/core/Tensor.h>

#include <array>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "policies/local/files/safetensors.h"
#include "policies/local/train/ranks.h"
#include "policies/local/train/state_layout.h"

namespace kevin::local {

// The next step where a checkpoint cannot be read.
inline constexpr const char* kRemoveCheckpoint =
    "remove that folder; --resume then goes on from the one before";

class StoredShares {
 public:
  // `ranks` wrote `folder` with the layout `layout`; the reader is rank `reader`. Opens nothing yet.
  StoredShares(std::filesystem::path folder, int ranks, int reader, StateLayout layout);

  static std::string FileOf(int rank, int ranks);  // without .safetensors

  // The functions below open the files that they need, and throw Error(kBadRequest) where one is damaged or of a model
  // with other parameters. None waits for other ranks.

  // Names of parameters laid end to end, with their sizes.
  using Parts = std::vector<std::pair<std::string, int64_t>>;
  // Fills this rank's share of the weights and both moments of `parts`; `own` are of equal size. Numbers beyond the
  // parts are 0.
  void ReadShare(const Parts& parts, const Ranks& ranks, const std::array<at::Tensor*, 3>& own);
  // The updates that a parameter has had.
  double StepsOf(const std::string& parameter);
  // A tensor that every rank has whole.
  at::Tensor Common(const std::string& name);

 private:
  const Checkpoint& File(int rank);
  const StateLayout::Place& PlaceOf(const std::string& parameter) const;
  int64_t ShareOfPiece(const std::string& piece);
  // Numbers [first, first + to.numel()) of tensor PIECEkind.
  void Read(const std::string& piece, const char* kind, int64_t first, at::Tensor to);
  [[noreturn]] void DoesNotFit(int rank, const std::string& name) const;

  const std::filesystem::path folder_;
  const int ranks_, own_;
  const StateLayout layout_;
  std::map<int, Checkpoint> files_;
};

}  // namespace kevin::local
