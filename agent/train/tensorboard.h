#pragma once
// Curves for TensorBoard: an event file, events.out.tfevents.SECONDS.HOST, of scalars.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>

namespace kevin {

class TensorBoardFile {
 public:
  // A new file in `folder`, which is made. Throws Error(kBadRequest) when it cannot be.
  TensorBoardFile(const std::filesystem::path& folder, double wall_time);
  // Flushed, so that a viewer sees it. Throws Error(kBroken) when the disk is full.
  void Add(int64_t step, double wall_time, const std::map<std::string, double>& scalars);

 private:
  void Record(const std::string& event);
  std::filesystem::path path_;
  std::ofstream file_;
};

uint32_t Crc32c(std::string_view bytes);

}  // namespace kevin
