#pragma once
#include "env/gpu/launch/interpreter.h"

namespace kevin::launch {

inline constexpr int kMaxDepth = 800;  // of evaluation, which is recursive
inline constexpr int kMaxCalls = 64;   // functions within one another

struct Interpreter::Depth {
  Depth(Interpreter* interpreter, size_t at) : interpreter_(interpreter) {
    interpreter_->Step(at);
    if (interpreter_->depth_ >= kMaxDepth) {
      interpreter_->source_.Fail(at, "this is nested too deeply; write a loop or smaller steps");
    }
    ++interpreter_->depth_;
  }
  ~Depth() { --interpreter_->depth_; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;

 private:
  Interpreter* interpreter_;
};

struct Interpreter::BlockScope {
  explicit BlockScope(Frame* frame) : frame_(frame) { frame_->blocks.emplace_back(); }
  ~BlockScope() { frame_->blocks.pop_back(); }
  BlockScope(const BlockScope&) = delete;
  BlockScope& operator=(const BlockScope&) = delete;

 private:
  Frame* frame_;
};

}  // namespace kevin::launch
