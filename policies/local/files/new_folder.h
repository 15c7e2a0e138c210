#pragma once
// A folder that appears whole or not at all: filled under another name beside its place, then renamed.

#include <filesystem>
#include <string>

namespace kevin::local {

class NewFolder {
 public:
  // Throws Error(kBadRequest) when `place` holds files already or its parent cannot be written.
  explicit NewFolder(std::filesystem::path place);
  ~NewFolder();  // what was not committed is removed
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  const std::filesystem::path& Path() const { return temporary_; }  // to write into
  void WriteText(const std::string& name, const std::string& text) const;
  // The small files beside the weights (tokenizer, template, configs, ...), except weights and their index.
  void CopyModelFiles(const std::filesystem::path& from) const;
  void Commit();  // throws Error(kBroken)

 private:
  std::filesystem::path place_, temporary_;
  bool committed_ = false;
};

}  // namespace kevin::local
