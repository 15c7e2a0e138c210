#pragma once
// Memory shared between the trusted side and the processes it starts: an anonymous file (memfd), its mapping,
// and the seals that keep the other side from resizing it or writing to it.

#include <cstddef>
#include <string>
#include <utility>

namespace kevin {

// A file descriptor that closes itself.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept;
  ~Fd();
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void Reset();

 private:
  int fd_ = -1;
};

enum class Access { kReadOnly, kReadWrite };

// A shared mapping of a whole memfd, aligned to and backed by 2 MiB pages where the kernel allows it (both
// sides of a pair get the same kind of pages). Move-only; unmaps itself.
class Mapping {
 public:
  Mapping() = default;
  // Throws Error(kBroken) when the memory is not there. `populate` makes the page tables now, so that the
  // first timed call does not pay for them.
  Mapping(int fd, size_t bytes, Access access, bool populate);
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();
  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// Creates a memfd of `bytes`. Throws Error(kBroken).
Fd CreateSharedFile(const std::string& name, size_t bytes);

// All its bytes; empty when they cannot be read whole.
std::string ReadSharedFile(int fd);

// Nobody can resize the file from here on.
void SealSize(int fd);
// As SealSize, and no new writable mapping and no write(): only mappings that exist now stay writable.
void SealContents(int fd);

}  // namespace kevin
