#include "agent/interrupt.h"

#include <csignal>

namespace kevin {
namespace {

std::atomic<bool> interrupted{false}, interrupted_again{false};
std::atomic<int> patience_left{1};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

void Note(int) {
  if (interrupted.exchange(true)) interrupted_again = true;
  if (--patience_left > 0) return;
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

}  // namespace

InterruptGuard::InterruptGuard(int patience) {
  interrupted = interrupted_again = false;
  patience_left = patience;
  struct sigaction action = {};
  action.sa_handler = Note;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

InterruptGuard::~InterruptGuard() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

const std::atomic<bool>* InterruptGuard::flag() const { return &interrupted; }
const std::atomic<bool>* InterruptGuard::again() const { return &interrupted_again; }

}  // namespace kevin
