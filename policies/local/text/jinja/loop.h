#pragma once
// `loop` within {% for %}.

#include <string_view>
#include <vector>

#include "policies/local/text/jinja/run.h"

namespace kevin::local::jinja {

class Loop : public Callable {
 public:
  explicit Loop(const Value& list) : list_(list), items_(list_.AsList()->items) {}
  Value Call(Run& run, Arguments& arguments) override;
  std::optional<Value> Field(std::string_view name) const override;
  int Height() const override { return list_.Height() + 1; }

  bool Next() { return ++index_ < static_cast<int64_t>(items_.size()); }  // before the first item, too
  const Value& Current() const { return items_[static_cast<size_t>(index_)]; }

 private:
  Value Neighbour(int64_t index, const char* what) const;

  const Value list_;
  const std::vector<Value>& items_;  // of the list
  int64_t index_ = -1;
};

}  // namespace kevin::local::jinja
