#pragma once
// Where the numbers of each parameter stand in the optimiser's state. The state is a list of pieces, parameters laid end
// to end; every rank has an equal share of each piece, the last ones' padded with zeros. The layout follows from the
// parameters and from whether layers are sharded, so that a state written in one way can be read in the other.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "policies/local/model/language_model.h"

namespace kevin::local {

struct StateLayout {
  struct Place {
    std::string piece;  // tensors of the state are called PIECEweights, PIECEfirst, PIECEsecond, PIECEsteps
    int64_t begin = 0;
  };
  std::map<std::string, Place> places;   // by parameter
  std::map<std::string, int64_t> sizes;  // of the pieces, in numbers, without padding
};

// Not sharded: "bucket0.", "bucket1.", ... of Optimizer, of matrices or of vectors. Sharded: the parameters of a layer in
// "layer0.matrices.", "layer0.vectors.", ... of ShardedWeights, the others in buckets.
StateLayout LayoutOf(const std::vector<NamedParameter>& parameters, bool is_sharded);

bool IsInLayer(const NamedParameter& parameter);

}  // namespace kevin::local
