#include "policies/local/text/jinja/loop.h"

namespace kevin::local::jinja {

Value Loop::Call(Run&, Arguments&) { Fail("recursive loops are not supported"); }

Value Loop::Neighbour(int64_t index, const char* what) const {
  const bool there = index >= 0 && index < static_cast<int64_t>(items_.size());
  return there ? items_[static_cast<size_t>(index)] : Value(Undefined{what});
}

std::optional<Value> Loop::Field(std::string_view name) const {
  const auto size = static_cast<int64_t>(items_.size());
  if (name == "index") return index_ + 1;
  if (name == "index0") return index_;
  if (name == "revindex") return size - index_;
  if (name == "revindex0") return size - index_ - 1;
  if (name == "first") return index_ == 0;
  if (name == "last") return index_ + 1 == size;
  if (name == "length") return size;
  if (name == "depth") return depth_ + 1;
  if (name == "depth0") return depth_;
  if (name == "previtem") return Neighbour(index_ - 1, "there is no previous item");
  if (name == "nextitem") return Neighbour(index_ + 1, "there is no next item");
  if (name == "cycle") {
    return MakeFunction([index = index_](Run&, Arguments& arguments) {
      if (arguments.positional.empty()) Fail("no items for cycling given");
      return arguments.positional[static_cast<size_t>(index) % arguments.positional.size()];
    });
  }
  return std::nullopt;
}

}  // namespace kevin::local::jinja
