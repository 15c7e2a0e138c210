#pragma once
// What differs between the kinds of candidate ("cpp", "cuda", "ptx") outside the environment. A kind is also
// the language of its fenced block in a reply. Pure; safe from any thread.

#include <filesystem>
#include <string>

namespace kevin {

// "cpp", "cu" or "ptx", without a dot; an unknown kind is its own ending.
std::string FileEnding(const std::string& kind);

// By the ending: .cpp .cc .cxx are "cpp", .cu is "cuda", .ptx is "ptx"; any other is "", undecided.
std::string KindOfFile(const std::filesystem::path& path);

// As it is said in a sentence: "C++", "CUDA C++", "PTX".
std::string LanguageOf(const std::string& kind);

// What is behind a device's number: "NVIDIA H200" of "cuda:0: NVIDIA H200". Results compare within a model.
std::string DeviceModel(const std::string& device);

// "cuda" and "ptx": judged on a GPU.
bool IsForGpu(const std::string& kind);

}  // namespace kevin
