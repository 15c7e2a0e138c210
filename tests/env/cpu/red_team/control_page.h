// For attacks: the shared control page as the runner lays it out (env/process/shared_control_page.h), and two
// ways to find it from inside. The test pastes this text in place of #include "control_page.h".
#include <link.h>
#include <linux/futex.h>
#include <omp.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <ctime>

struct Page {
  alignas(64) std::atomic<uint32_t> go;
  alignas(64) std::atomic<uint32_t> done;
  alignas(64) std::atomic<uint32_t> returned;
  alignas(64) std::atomic<uint32_t> state;
  std::atomic<uint64_t> fault_address;
  uint32_t command;
  uint32_t calls;
  uint16_t slot[256];
};

inline bool LooksLikePage(uint64_t word) { return word && word % (2 << 20) == 0 && word >> 46 == 1; }

// The runner keeps a pointer to the page in its data segment; mappings of Kevin's start at 2 MiB boundaries.
inline Page* FindPageInData() {
  Page* found = nullptr;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& header = info->dlpi_phdr[i];
          if (header.p_type != PT_LOAD || !(header.p_flags & PF_W)) continue;
          const auto* words =
              reinterpret_cast<const uint64_t*>((info->dlpi_addr + header.p_vaddr + 7) & ~7UL);
          for (size_t w = 0; w + 1 < header.p_memsz / 8; ++w) {
            if (LooksLikePage(words[w])) *static_cast<Page**>(out) = reinterpret_cast<Page*>(words[w]);
          }
        }
        return 1;  // the first object is the program itself
      },
      &found);
  return found;
}

// ... and another one on its stack, above ours: the first such pointer whose target counts calls.
inline Page* FindPageOnStack() {
  const auto* word = static_cast<const uint64_t*>(__builtin_frame_address(0));
  for (int i = 0; i < 1000; ++i) {
    if (!LooksLikePage(word[i])) continue;
    auto* page = reinterpret_cast<Page*>(word[i]);
    if (page->go > 0 && page->go < 100000 && page->calls > 0 && page->calls <= 256 && page->state == 1)
      return page;
  }
  return nullptr;
}

inline void Wake(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

// From slot to slot of an input of `bytes`, in whole pages: mappings lie apart.
constexpr int64_t InputDistance(int64_t bytes) { return bytes + (bytes >= 2 << 20 ? 2 << 20 : 16 << 12); }

// The pointer that the call for slot `other` will get, from the one that this call got.
template <typename T>
T* Neighbour(const Page* page, T* mine, int64_t stride_bytes, uint32_t call) {
  const int64_t distance = static_cast<int64_t>(page->slot[call]) - page->slot[page->returned];
  return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(mine) + distance * stride_bytes);
}

// How often this process was continued: it is stopped around its batches, and at the pauses of an audit.
inline std::atomic<uint32_t> continued{0};
inline bool CountContinues() {
  struct sigaction action {};
  action.sa_handler = [](int) { ++continued; };
  action.sa_flags = SA_RESTART;
  return sigaction(SIGCONT, &action, nullptr) == 0;
}

inline double NowUs() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}
