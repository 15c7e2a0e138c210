#include "agent/train/best_checkpoint.h"

#include "env/error.h"

namespace kevin {
namespace fs = std::filesystem;

void KeepBest(const fs::path& output, const fs::path& checkpoint) {
  const fs::path place = output / ("best-" + checkpoint.filename().string()), link = output / "best",
                 next = output / ".best";
  try {
    fs::remove_all(place);
    std::error_code no_links;
    const auto copy = fs::copy_options::recursive;
    fs::copy(checkpoint, place, copy | fs::copy_options::create_hard_links, no_links);
    if (no_links) fs::remove_all(place), fs::copy(checkpoint, place, copy);
    const fs::path earlier = fs::is_symlink(link) ? output / fs::read_symlink(link) : fs::path();
    fs::remove(next);
    fs::create_directory_symlink(place.filename(), next);
    fs::rename(next, link);
    if (!earlier.empty() && earlier != place) fs::remove_all(earlier);
  } catch (const fs::filesystem_error& error) {
    throw Error(ExitCode::kBroken, std::string("keeping the best checkpoint failed: ") + error.what(),
                "make room there; --resume goes on");
  }
}

}  // namespace kevin
