#pragma once
// Memory shared between the trusted side and its child processes: an anonymous file (memfd), its mapping, and
// the seals that prevent the other side from resizing it or writing to it.

#include <cstddef>
#include <string>
#include <utility>

namespace kevin {

// Owns a file descriptor.
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

// A shared mapping of a whole memfd, aligned to 2 MiB and with 2 MiB pages where the kernel permits them
// (both timed processes get the same kind of pages). The destructor unmaps it. Move-only.
class Mapping {
 public:
  Mapping() = default;
  // Throws Error(kBroken) if there is not enough memory. `populate` makes the page tables now, not in the
  // first timed call.
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

// Its content; empty if it cannot be read completely.
std::string ReadSharedFile(int fd);

// From now on no process can resize the file.
void SealSize(int fd);
// SealSize, and from now on no new writable mapping and no write(): only existing mappings stay writable.
void SealContents(int fd);

}  // namespace kevin
