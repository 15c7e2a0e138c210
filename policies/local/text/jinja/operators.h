#pragma once
// What operators, fields and indices mean: Python's rules, with Jinja's for what is missing.

#include <string_view>
#include <vector>

#include "policies/local/text/jinja/expression.h"
#include "policies/local/text/jinja/run.h"

namespace kevin::local::jinja {

Value Apply(Run& run, Operator op, const Value& left, const Value& right);
bool Contains(Run& run, const Value& container, const Value& item);

// What one goes over: items, keys, characters; of an undefined value nothing.
std::vector<Value> ItemsOf(Run& run, const Value& value);
size_t LengthOf(Run& run, const Value& value);

Value FieldOf(Run& run, const Value& object, std::string_view name);
Value ItemOf(Run& run, const Value& object, const Value& index);
Value SliceOf(Run& run, const Value& object, const Value* from, const Value* to, const Value* step);
Value CallValue(Run& run, const Value& callee, Arguments& arguments);

// A method of a string, list or dict, bound to it; nullopt: it has none of that name.
std::optional<Value> MethodOf(const Value& object, std::string_view name);

Value ApplyFilter(Run& run, std::string_view name, const Value& subject, Arguments& arguments);
bool ApplyTest(Run& run, std::string_view name, const Value& subject, Arguments& arguments);

// "{}".format(...) and "%s" % ...
std::string FormatBraces(Run& run, std::string_view format, const Arguments& arguments);
std::string FormatPercent(Run& run, std::string_view format, const Value& arguments);

}  // namespace kevin::local::jinja
