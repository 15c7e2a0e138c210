#pragma once
// How ranks find each other, for the groups over Gloo and NCCL alike. For sources that have c10d's headers.

#include <chrono>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "env/error.h"
#include "policies/local/train/ranks.h"

namespace kevin::local {

// Opens the store, and waits for all ranks of the group. The result's limit of waiting is `later`. Throws Error(kBroken)
// with the numbers of the ranks that have not come within join_seconds; c10::Error where the store cannot be reached.
inline c10::intrusive_ptr<c10d::Store> MeetInStore(const Rendezvous& rendezvous, const std::string& group,
                                                   std::chrono::milliseconds later) {
  using Clock = std::chrono::steady_clock;
  const std::chrono::milliseconds limit(static_cast<int64_t>(rendezvous.join_seconds * 1000));
  const Clock::time_point end = Clock::now() + limit;
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(rendezvous.port);
  options.isServer = rendezvous.holds_store;
  options.numWorkers = static_cast<std::size_t>(rendezvous.size);
  options.waitWorkers = false;
  options.timeout = limit;
  const auto store = c10::make_intrusive<c10d::TCPStore>(rendezvous.host, options);
  auto own = c10::make_intrusive<c10d::PrefixStore>(group + rendezvous.name, store);
  const auto key = [](int rank) { return "here-" + std::to_string(rank); };
  own->set(key(rendezvous.rank), std::vector<uint8_t>{1});
  for (;;) {
    std::string missing;
    for (int rank = 0; rank < rendezvous.size; ++rank) {
      if (!own->check({key(rank)})) missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
    }
    if (missing.empty()) break;
    if (Clock::now() > end)
      throw Error(
          ExitCode::kBroken,
          "rank " + std::to_string(rendezvous.rank) + " waited " + std::to_string(limit.count() / 1000) +
              " s for all of " + std::to_string(rendezvous.size) + " ranks; there is no rank " + missing,
          "start as many ranks as WORLD_SIZE says, or set KEVIN_JOIN_SECONDS where they start far apart");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  store->setTimeout(later);
  own->setTimeout(later);
  return own;
}

}  // namespace kevin::local
