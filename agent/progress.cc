#include "agent/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>

namespace kevin {
namespace {

constexpr auto kTick = std::chrono::milliseconds(100);
constexpr const char* kEraseLine = "\r\033[K";

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
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
  label_ = label;
  with_seconds_ = with_seconds;
  started_s_ = Now();
  Draw();
}

void Progress::Line(const std::string& text) {
  const std::lock_guard lock(mutex_);
  Erase();
  fmt::print(out_, "{}\n", text);
  std::fflush(out_);
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
  fmt::print(out_, "{}{}{}", kEraseLine, label_,
             with_seconds_ ? fmt::format("  {:.1f} s", Now() - started_s_) : "");
  std::fflush(out_);
}

void Progress::Erase() {
  if (!live_ || label_.empty()) return;
  std::fputs(kEraseLine, out_);
  std::fflush(out_);
}

}  // namespace kevin
