#pragma once
// What a command shows its user while it runs, and how the user stops it.

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace kevin {

// Writes `text` in its printable form (env/printable.h) and flushes. A closed pipe is ignored; Error(kBroken)
// when the disk behind stdout is full. Print and Progress are the only ways of Kevin's commands to a terminal,
// so that no text of a problem, a reply, a record or a server acts on it. The form is the same in a pipe:
// `kevin show | less -R` is a terminal too. Bytes as they are stored: --json, and files that commands write.
void Print(std::FILE* out, const std::string& text);

// Flushes standard output. Throws Error(kBroken) if this or any earlier write of Print and Progress to it failed,
// other than on a closed pipe. At the end of a program.
void RequireOutputWritten();

// `text` with its further lines indented by at least four spaces, so that none of them reads like a line of the
// program: a message of a server, of a compiler, of a file.
std::string Indented(std::string text);

template <typename... Arguments>
void PrintFormat(std::FILE* out, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  Print(out, fmt::format(format, std::forward<Arguments>(arguments)...));
}

// Progress of a command. On a terminal: one live line with the current phase and its seconds, redrawn ten
// times a second, and finished lines that scroll above it. Elsewhere: the finished lines only. Any thread.
class Progress {
 public:
  // `out` is not owned.
  explicit Progress(std::FILE* out);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  bool live() const { return live_; }  // `out` is a terminal

  // The live line becomes "LABEL  SECONDS s", counted from now. An empty label removes it.
  void Phase(const std::string& label);

  // The live line becomes `text`, without seconds.
  void Status(const std::string& text);

  // Prints a finished line; its line end is added. Further lines of `text` are indented: none of them reads
  // like a line of its own.
  void Line(const std::string& text);

 private:
  void Tick();
  void Show(const std::string& label, bool with_seconds);
  void Draw();   // needs mutex_
  void Erase();  // needs mutex_

  std::FILE* const out_;
  const bool live_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::string label_;
  bool with_seconds_ = true;
  std::chrono::steady_clock::time_point started_;
  bool stop_ = false;
  std::thread ticker_;
};

// Turns Ctrl-C (SIGINT), SIGTERM and SIGHUP (a terminal that is closed; ignored under nohup) into flags while it
// exists, so that a command can end cleanly. After `patience` signals the next one ends the process at once; the
// database survives that. With patience 2 the
// first signal asks to finish the work in progress and the second to stop it. One at a time.
class InterruptGuard {
 public:
  explicit InterruptGuard(int patience = 1);
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  const std::atomic<bool>* flag() const;   // a CancelToken: at least one signal came
  const std::atomic<bool>* again() const;  // at least two came
};

}  // namespace kevin
