#pragma once
// One rendering: where names are looked up, what was printed so far, what may still be used up.

#include <ctime>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "policies/local/text/jinja/limits.h"
#include "policies/local/text/jinja/value.h"

namespace kevin::local::jinja {

// Names of one block; what is not here is looked for around it.
struct Scope {
  std::shared_ptr<Scope> around;
  std::vector<std::pair<std::string, Value>> names;

  const Value* Find(std::string_view name) const;
  void Set(std::string_view name, const Value& value);
};

class Run {
 public:
  using Clock = std::function<std::tm()>;
  Run(const Limits& limits, Clock now);
  ~Run();
  Run(const Run&) = delete;

  // Throws TemplateError when all steps are used up.
  void Step(size_t steps = 1);
  // Before text of that size is made. Throws TemplateError when it is too large, or all text made is.
  void Reserve(size_t bytes);
  void Write(std::string_view text);

  const Limits& limits() const { return limits_; }
  std::tm Now() const { return now_(); }
  int line = 0;  // of what is being evaluated

  std::shared_ptr<Scope> scope;
  std::string output;
  int calls = 0;  // of macros, in one another
  int depth = 0;  // of evaluations in one another

  // What may hold itself is emptied in the end.
  std::shared_ptr<Namespace> NewNamespace();
  void Captured(const std::shared_ptr<Scope>& captured) { captured_.push_back(captured); }

 private:
  const Limits limits_;
  const Clock now_;
  size_t steps_left_;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
  std::vector<std::shared_ptr<Scope>> captured_;
};

// A new scope for as long as it lives.
class Within {
 public:
  explicit Within(Run& run) : Within(run, run.scope) {}
  Within(Run& run, std::shared_ptr<Scope> around);
  ~Within() { run_.scope = std::move(before_); }

 private:
  Run& run_;
  std::shared_ptr<Scope> before_;
};

// Output goes elsewhere for as long as it lives.
class Capture {
 public:
  explicit Capture(Run& run) : run_(run) { run.output.swap(before_); }
  ~Capture() { run_.output.swap(before_); }
  std::string Take() { return std::move(run_.output); }

 private:
  Run& run_;
  std::string before_;
};

// One level deeper in the evaluation. Throws TemplateError before a thread's stack is used up.
class Descent {
 public:
  explicit Descent(Run& run);
  ~Descent() { --run_.depth; }

 private:
  Run& run_;
};

class Function : public Callable {
 public:
  using Body = std::function<Value(Run&, Arguments&)>;
  explicit Function(Body body) : body_(std::move(body)) {}
  Value Call(Run& run, Arguments& arguments) override { return body_(run, arguments); }

 private:
  Body body_;
};
Value MakeFunction(Function::Body body);

// The arguments in the order of `names`, null where not given. Throws TemplateError when there are fewer than
// `required`, too many or unknown ones. They live as long as `arguments`.
std::vector<const Value*> Bind(std::string_view function, const Arguments& arguments,
                               std::initializer_list<std::string_view> names, size_t required = 0);
int64_t IntegerOr(const Value* value, int64_t otherwise);  // null: otherwise; throws on other kinds
const std::string& TextOf(const Value& value);             // throws where it is none

[[noreturn]] void Fail(const std::string& reason);
// Throws if `value` is undefined.
const Value& Defined(const Value& value);

}  // namespace kevin::local::jinja
