#pragma once
// The way from the rank that has the engine to the others: which steps to run on their slices of the model. Frames of
// MessagePack (batch.h) over a Unix socket, so that waiting for the next step costs nothing, has no limit of time and
// occupies no GPU. All ranks are on one host, and ignore SIGPIPE.

#include <cstdint>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "policies/local/generate/model_runner.h"

namespace kevin::local {

// A file descriptor that is closed at the end.
class Socket {
 public:
  explicit Socket(int file = -1) : file_(file) {}
  Socket(Socket&& other) noexcept : file_(other.file_) { other.file_ = -1; }
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();
  int get() const { return file_; }

 private:
  int file_;
};

// Of rank 0: to all others.
class SplitLink {
 public:
  // `path`: of a Unix socket that does not exist yet, in a folder of this user alone. Others may connect from now on.
  explicit SplitLink(const std::string& path);
  ~SplitLink();
  // Waits for the connections of `ranks` - 1 ranks. Throws Error(kBroken) where they do not come within `seconds`.
  void Accept(int ranks, double seconds);

  // To all ranks, by any thread. Throws Error(kBroken) with the rank that is gone.
  void Tell(const nlohmann::json& command);
  // The last command: that no further one follows, and why ("it has ended: no memory"); "": the run is over.
  void End(const std::string& why);

 private:
  struct Follower {
    int rank = 0;
    Socket socket;
  };
  const std::string path_;
  Socket listener_;
  std::mutex mutex_;
  std::vector<Follower> followers_;
  bool has_ended_ = false;
};

// Of another rank. Throws Error(kBroken) where rank 0 cannot be reached.
Socket ConnectToFirst(const std::string& path, int rank);

// Steps as bytes and back. Tokens are known; what is drawn is not carried, because rank 0 draws.
std::vector<uint8_t> PackSteps(std::span<const SequenceStep> steps);
class UnpackedSteps {
 public:
  explicit UnpackedSteps(std::span<const uint8_t> bytes);  // throws Error(kBroken) where they are cut off
  std::span<const SequenceStep> Steps() const { return steps_; }

 private:
  std::vector<int32_t> numbers_;
  std::vector<SequenceStep> steps_;
};

}  // namespace kevin::local
