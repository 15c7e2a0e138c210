#pragma once
// The files an episode leaves behind: FOLDER/EPISODE/TURN.cpp for every source and best.cpp for the best so
// far (.cu and .ptx for those kinds). A file is there whole or not at all.

#include <filesystem>
#include <string>

namespace kevin {

class EpisodeOutput {
 public:
  // Makes `folder` if needed. Throws Error(kBadRequest) when it cannot be written.
  explicit EpisodeOutput(std::filesystem::path folder);

  void set_episode(const std::string& episode) { episode_ = episode; }

  // Both return the path written. Throw Error(kBroken), for example when the disk is full.
  std::string WriteTurn(int turn, const std::string& kind, const std::string& source) const;
  std::string WriteBest(const std::string& kind, const std::string& source) const;

  // A file that was written here before; no error when it is gone.
  void Remove(const std::string& path) const;

 private:
  std::string Write(const std::string& name, const std::string& source) const;

  std::filesystem::path folder_;
  std::string episode_;
};

}  // namespace kevin
