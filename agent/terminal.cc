#include "agent/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "env/error.h"
#include "env/printable.h"
#include "env/process/machine.h"

namespace kevin {
namespace {

constexpr auto kTick = std::chrono::milliseconds(100);
constexpr const char* kFreeSpace = "free space where it is written to";
constexpr const char* kEraseLine = "\r\033[K";

std::atomic<bool> interrupted{false}, interrupted_again{false};
std::atomic<int> first_output_error{0};
constexpr int kStopSignals[] = {SIGINT, SIGTERM, SIGHUP};
std::atomic<int> patience_left{1};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

void NoteSignal(int) {
  if (interrupted.exchange(true)) interrupted_again = true;
  if (--patience_left > 0) return;
  for (const int signal : kStopSignals) std::signal(signal, SIG_DFL);
}

// Writes and flushes. Returns 0 or the reason of the failure; a closed pipe is none.
int Write(std::FILE* out, const std::string& text) {
  errno = 0;
  bool failed = std::fwrite(text.data(), 1, text.size(), out) != text.size();
  int reason = errno;
  if (!failed) {
    failed = std::fflush(out) != 0;
    reason = errno;
  }
  if (!failed || reason == EPIPE) return 0;
  if (reason == 0) reason = EIO;
  int none = 0;
  if (out == stdout) first_output_error.compare_exchange_strong(none, reason);
  return reason;
}

}  // namespace

Progress::Progress(std::FILE* out) : out_(out), live_(::isatty(::fileno(out)) == 1) {
  if (live_) ticker_ = std::thread([this] { Tick(); });
}

Progress::~Progress() {
  if (!live_) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    Erase();
  }
  wake_.notify_all();
  ticker_.join();
}

void Progress::Phase(const std::string& label) { Show(label, true); }
void Progress::Status(const std::string& text) { Show(text, false); }

void Progress::Show(const std::string& label, bool with_seconds) {
  const std::lock_guard lock(mutex_);
  Erase();
  label_ = PrintableLine(label);
  with_seconds_ = with_seconds;
  started_ = std::chrono::steady_clock::now();
  Draw();
}

void Progress::Line(const std::string& text) {
  const std::lock_guard lock(mutex_);
  Erase();
  Write(out_, Printable(Indented(text)) + "\n");
  Draw();
}

void Progress::Tick() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    wake_.wait_for(lock, kTick);
    if (!stop_) Draw();
  }
}

void Progress::Draw() {
  if (!live_ || label_.empty()) return;
  Write(out_, kEraseLine + label_ + (with_seconds_ ? fmt::format("  {:.1f} s", SecondsSince(started_)) : ""));
}

void Progress::Erase() {
  if (!live_ || label_.empty()) return;
  Write(out_, kEraseLine);
}

std::string Indented(std::string text) {
  constexpr std::string_view kIndent = "    ";
  for (size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 1)) {
    const bool is_indented = std::string_view(text).substr(at + 1).starts_with(kIndent);
    if (!is_indented && at + 1 < text.size()) text.insert(at + 1, kIndent);
  }
  return text;
}

void Print(std::FILE* out, const std::string& text) {
  const int reason = Write(out, Printable(text));
  if (reason == 0 || out != stdout) return;
  throw Error(ExitCode::kBroken, fmt::format("standard output: {}", std::strerror(reason)), kFreeSpace);
}

void RequireOutputWritten() {
  errno = 0;
  const int flush_error = std::fflush(stdout) == 0 || errno == EPIPE ? 0 : errno;
  const int reason = first_output_error != 0 ? first_output_error.load() : flush_error;
  if (reason != 0)
    throw Error(ExitCode::kBroken, fmt::format("standard output: {}", std::strerror(reason)), kFreeSpace);
}

InterruptGuard::InterruptGuard(int patience) {
  interrupted = interrupted_again = false;
  patience_left = patience;
  struct sigaction action = {};
  action.sa_handler = NoteSignal;
  action.sa_flags = SA_RESTART;
  for (const int signal : kStopSignals) {
    struct sigaction before = {};
    sigaction(signal, nullptr, &before);
    const bool ignored = signal == SIGHUP && before.sa_handler == SIG_IGN;  // under nohup
    if (!ignored) sigaction(signal, &action, nullptr);
  }
}

InterruptGuard::~InterruptGuard() {
  for (const int signal : kStopSignals) {
    struct sigaction now = {};
    sigaction(signal, nullptr, &now);
    if (now.sa_handler == NoteSignal) std::signal(signal, SIG_DFL);
  }
}

const std::atomic<bool>* InterruptGuard::flag() const { return &interrupted; }
const std::atomic<bool>* InterruptGuard::again() const { return &interrupted_again; }

}  // namespace kevin
