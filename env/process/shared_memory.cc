#include "env/process/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "env/error.h"

namespace kevin {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

[[noreturn]] void Fail(const std::string& what) {
  throw Error(ExitCode::kBroken, "shared memory: " + what + ": " + std::strerror(errno),
              "free memory or choose a smaller --size");
}

void AddSeals(int fd, int seals) {
  if (fcntl(fd, F_ADD_SEALS, seals) != 0) Fail("cannot seal");
}

}  // namespace

Fd& Fd::operator=(Fd&& other) noexcept {
  if (this != &other) {
    Reset();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

Fd::~Fd() { Reset(); }

void Fd::Reset() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

Mapping::Mapping(int fd, size_t bytes, Access access, bool populate) : bytes_(bytes) {
  const int protection = access == Access::kReadWrite ? PROT_READ | PROT_WRITE : PROT_READ;
  // Reserve 2 MiB more, then map the file at the first 2 MiB boundary inside.
  void* reserved =
      mmap(nullptr, bytes + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) Fail("cannot reserve addresses");
  const auto start = reinterpret_cast<uintptr_t>(reserved);
  const uintptr_t aligned = (start + kHugePage - 1) / kHugePage * kHugePage;
  void* placed = mmap(reinterpret_cast<void*>(aligned), bytes, protection, MAP_SHARED | MAP_FIXED, fd, 0);
  if (placed == MAP_FAILED) {
    munmap(reserved, bytes + kHugePage);
    Fail("cannot map " + std::to_string(bytes >> 20) + " MiB");
  }
  if (aligned > start) munmap(reserved, aligned - start);
  const uintptr_t end = (aligned + bytes + 4095) / 4096 * 4096;
  const uintptr_t reserved_end = start + bytes + kHugePage;
  if (reserved_end > end) munmap(reinterpret_cast<void*>(end), reserved_end - end);
  data_ = static_cast<std::byte*>(placed);
  madvise(data_, bytes, MADV_HUGEPAGE);  // has an effect where the kernel permits huge shmem pages
  if (populate)
    madvise(data_, bytes, access == Access::kReadWrite ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Mapping::~Mapping() {
  if (data_) munmap(data_, bytes_);
}

Fd CreateSharedFile(const std::string& name, size_t bytes) {
  Fd fd(memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) Fail("cannot create " + name);
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) Fail("cannot size " + name);
  return fd;
}

std::string ReadSharedFile(int fd) {
  struct stat info {};
  if (fstat(fd, &info) != 0) return "";
  std::string bytes(static_cast<size_t>(info.st_size), '\0');
  if (pread(fd, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) bytes.clear();
  return bytes;
}

void SealSize(int fd) { AddSeals(fd, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL); }

void SealContents(int fd) { AddSeals(fd, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL); }

}  // namespace kevin
