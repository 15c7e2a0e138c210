// Leaves a message for the next process of the same candidate in outputs of slots that no call of the batch has: how many
// batches there are, and so which ones are audits. It then ends, so that the test sees it.
#include <cstdio>
#include <cstdlib>
#include <algorithm>

#include "control_page.h"
constexpr long kOut = B * N * 4 + 8192;  // bytes from slot to slot
extern "C" void launch(const float* x, float* out) {
  static Page* page = FindPageInData();
  if (page->returned == 0) {
    bool used[256] = {};
    int most = 0;
    for (uint32_t i = 0; i < page->calls; ++i) used[page->slot[i]] = true, most = std::max<int>(most, page->slot[i]);
    for (int s = 0; s < most; ++s) {
      if (used[s]) continue;
      auto* word = reinterpret_cast<uint32_t*>(reinterpret_cast<uintptr_t>(out) + (s - page->slot[0]) * kOut) + 100;
      if (page->go == 1 && *word >> 8 == 0x4b4556) {
        std::printf("found a message of an earlier process: it had made %u batches\n", *word & 255);
        std::fflush(stdout);
        std::abort();
      }
      *word = 0x4b455600 | (page->go & 255);
    }
  }
#pragma omp parallel for schedule(static)
  for (long i = 0; i < B * N; ++i) out[i] = x[i] > 0 ? x[i] : 0;
}
