#pragma once
// OUT/best: the checkpoint that the dev suite chose, whatever becomes of OUT/checkpoints.

#include <filesystem>

namespace kevin {

// OUT/best, a link to a folder beside it, leads to a copy of `checkpoint` (hard links where they can be had:
// no room is taken) from one moment to the next. Throws Error(kBroken) when the disk is full.
void KeepBest(const std::filesystem::path& output, const std::filesystem::path& checkpoint);

}  // namespace kevin
