#pragma once
// Files for people: never overwritten unasked, never half there.

#include <string>

namespace kevin {

// All of `bytes` to an open file; `path` is for messages. Throws Error(kBroken) when the disk is full.
void WriteAll(int file, const std::string& bytes, const std::string& path);

// Whole or not at all: an existing file is replaced only with `force`, and only by a complete one. Devices,
// pipes and links are written to, never replaced. Throws Error(kBadRequest) when the file exists or cannot be
// written, Error(kBroken) when the disk is full.
void WriteFile(const std::string& path, const std::string& bytes, bool force);

}  // namespace kevin
