#pragma once
// For tests: writes programs by hand, loop by loop, with short names for the expressions that most stages have.

#include <string>
#include <utility>
#include <vector>

#include "tests/policies/search/program_cases.h"

namespace kevin::test {

using search::Loop, search::ExprPtr;

// Builds one program: buffers and variables get their numbers in order.
class ProgramBuilder {
 public:
  int Input(int64_t elements, const std::string& dtype = "float32") { return Add(elements, dtype, false); }
  int Output(int64_t elements, const std::string& dtype = "float32") { return Add(elements, dtype, true); }
  int InOut(int64_t elements) {
    const int buffer = Add(elements, "float32", true);
    program_.buffers.back().is_inout = true;
    return buffer;
  }
  int Workspace(int64_t elements, const std::string& dtype = "float32") {
    search::Buffer buffer;
    buffer.name = "w";
    buffer.dtype = dtype;
    buffer.elements = elements;
    program_.buffers.push_back(buffer);
    return Last();
  }
  Loop NewLoop(int64_t extent) { return {next_++, extent}; }
  void Do(const std::string& name, decltype(search::Stage::work) work) {
    search::Stage stage;
    stage.name = name;
    stage.work = std::move(work);
    program_.stages.push_back(std::move(stage));
  }
  std::vector<search::Stage>& Stages() { return program_.stages; }
  ProgramCase Case(const std::string& name, double terms = 1) {
    search::PlaceWorkspaces(program_);
    return {name, program_, terms};
  }

 private:
  int Add(int64_t elements, const std::string& dtype, bool is_output) {
    search::Buffer buffer;
    buffer.name = is_output ? "out" : "in";
    buffer.dtype = dtype;
    buffer.elements = elements;
    buffer.argument = arguments_++;
    buffer.is_output = is_output;
    program_.buffers.push_back(buffer);
    return Last();
  }
  int Last() const { return static_cast<int>(program_.buffers.size()) - 1; }

  search::Program program_;
  int next_ = 1, arguments_ = 0;
};

inline ExprPtr Var(const Loop& loop) { return search::Variable(loop.variable, loop.extent); }
inline ExprPtr At(const std::vector<Loop>& loops) {
  std::vector<ExprPtr> index;
  std::vector<int64_t> shape;
  for (const Loop& loop : loops) {
    index.push_back(Var(loop));
    shape.push_back(loop.extent);
  }
  return OffsetOf(index, shape);
}
inline ExprPtr Read(int buffer, const ExprPtr& offset) { return Load(buffer, search::Type::kFloat, offset); }
inline ExprPtr Read(int buffer, const std::vector<Loop>& loops) { return Read(buffer, At(loops)); }
inline ExprPtr Plus(const ExprPtr& a, const ExprPtr& b) { return Binary("add", a, b); }
inline ExprPtr Times(const ExprPtr& a, const ExprPtr& b) { return Binary("mul", a, b); }
// position * stride + tap * dilation - pad, and whether it is within [0, extent).
struct Tap {
  ExprPtr index, inside;
};
inline Tap TapOf(const Loop& position, const Loop& tap, int64_t stride, int64_t pad, int64_t extent) {
  const ExprPtr index = AddInt(AddInt(Scaled(Var(position), stride), Var(tap)), search::Int(-pad));
  return {index,
          And(Compare("less_equal", search::Int(0), index), Compare("less", index, search::Int(extent)))};
}

}  // namespace kevin::test
