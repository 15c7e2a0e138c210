#pragma once
#include "env/gpu/launch/parser.h"

namespace kevin::launch {

constexpr int kMaxNesting = 200;

struct Parser::Nesting {
  explicit Nesting(Parser* parser) : parser_(parser) {
    if (++parser_->nesting_ > kMaxNesting) {
      parser_->nesting_ = 0;
      parser_->Fail("this is nested too deeply; split it into several statements");
    }
  }
  ~Nesting() { --parser_->nesting_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  Parser* parser_;
};

}  // namespace kevin::launch
