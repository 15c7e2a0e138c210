#pragma once
// `loop` within {% for %}.

#include <string_view>
#include <vector>

#include "policies/local/text/jinja/run.h"

namespace kevin::local::jinja {

class Loop : public Callable {
 public:
  Loop(std::vector<Value> items, int depth) : items_(std::move(items)), depth_(depth) {}
  Value Call(Run& run, Arguments& arguments) override;
  std::optional<Value> Field(std::string_view name) const override;

  bool Next() { return ++index_ < static_cast<int64_t>(items_.size()); }  // before the first item, too
  const Value& Current() const { return items_[static_cast<size_t>(index_)]; }
  int depth() const { return depth_; }  // loops around it

 private:
  Value Neighbour(int64_t index, const char* what) const;

  const std::vector<Value> items_;
  const int depth_;
  int64_t index_ = -1;
};

}  // namespace kevin::local::jinja
