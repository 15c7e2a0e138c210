#pragma once
// What a person sees while something runs. On a terminal one live line with the phase and its seconds,
// ticking, with finished lines scrolling above it; elsewhere the finished lines only.

#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>

namespace kevin {

class Progress {
 public:
  // `out` is not owned. Whether it is a terminal decides on the live line.
  explicit Progress(std::FILE* out);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  bool live() const { return live_; }

  // The live line becomes "LABEL  SECONDS s", counting from now. An empty label removes it.
  void Phase(const std::string& label);

  // The live line becomes this text as it is.
  void Status(const std::string& text);

  // A line that stays; its line end is added. The live line moves below it.
  void Line(const std::string& text);

 private:
  void Tick();
  void Show(const std::string& label, bool with_seconds);
  void Draw();  // these two hold the mutex
  void Erase();

  std::FILE* const out_;
  const bool live_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::string label_;
  bool with_seconds_ = true;
  double started_s_ = 0;
  bool stop_ = false;
  std::thread ticker_;
};

}  // namespace kevin
