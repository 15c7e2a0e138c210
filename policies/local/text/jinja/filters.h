#pragma once
// The filters there are, in three lists. A filter gets the value on its left and its arguments.

#include <map>
#include <string_view>

#include "policies/local/text/jinja/run.h"

namespace kevin::local::jinja {

using Filter = Value (*)(Run&, const Value& subject, Arguments&);
using FilterList = std::map<std::string_view, Filter>;

const FilterList& TextFilters();
const FilterList& ListFilters();
const FilterList& ValueFilters();  // numbers, tojson, default, ...

}  // namespace kevin::local::jinja
