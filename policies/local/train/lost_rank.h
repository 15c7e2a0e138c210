#pragma once
// What a rank says when another is gone, whatever they met over. No torch: the NCCL plug-in includes it too.

#include <exception>
#include <string>

#include "env/error.h"

namespace kevin::local {

inline Error LostRank(int rank, const std::exception& error) {
  const std::string why = error.what();
  return Error(ExitCode::kBroken,
               "rank " + std::to_string(rank) + " lost another rank: " + why.substr(0, why.find('\n')),
               "start all ranks again with --resume");
}

}  // namespace kevin::local
