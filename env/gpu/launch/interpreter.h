#pragma once
// Interprets the launch function of an outline: evaluates statements and expressions, and builds the launch
// list. One interpreter runs once. Throws LaunchException.

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "env/gpu/launch/launch_function.h"
#include "env/gpu/launch/parser.h"
#include "env/gpu/launch/value.h"
#include "env/problem/problem.h"

namespace kevin::launch {

// The launch list under construction: knows the buffers and the limits of CUDA.
struct Buffer {
  std::string name;  // for messages
  int64_t bytes = 0;
  bool writable = true;
};

struct LaunchConfiguration {
  Extents grid = {1, 1, 1}, block = {1, 1, 1};
  int64_t shared_bytes = 0;
  std::vector<LaunchExtra> extras;
};

class ListBuilder {
 public:
  ListBuilder(const SourceText& source, const LaunchFunctionLimits& limits)
      : source_(source), limits_(limits) {}

  void AddTensor(const std::string& name, int64_t bytes, bool writable);
  void AddNote(size_t at, const std::string& note);  // the same note once

  Value AddWorkspace(size_t at, const Type& element, int64_t count, bool zeroed);
  void AddMemorySet(size_t at, const Value& place, int64_t value, int64_t bytes);
  void AddMemoryCopy(size_t at, const Value& to, const Value& from, int64_t bytes);
  void AddLaunch(size_t at, const std::string& kernel, const LaunchConfiguration& configuration,
                 std::vector<LaunchArgument> arguments);
  void AddConstant(size_t at, const std::string& symbol, int64_t offset, std::vector<uint8_t> bytes);

  // Throws where the pointer is outside its buffer or not aligned for its element type.
  LaunchArgument Address(size_t at, const Value& pointer) const;
  // The same for `bytes` bytes from there on. `written`: the operation changes them.
  BufferAddress Place(size_t at, const Value& pointer, int64_t bytes, bool written) const;

  LaunchList TakeList() { return std::move(list_); }
  const std::vector<std::string>& notes() const { return notes_; }
  const std::set<std::string>& kernels() const { return kernels_; }

 private:
  void AddOperation(size_t at, LaunchOperation operation);
  Dim3 Checked(size_t at, const char* what, const Extents& extents, const Extents& limits) const;
  void ApplyExtra(size_t at, const LaunchExtra& extra, KernelLaunch* launch);
  std::string BufferText(int buffer) const;

  const SourceText& source_;
  const LaunchFunctionLimits& limits_;
  std::vector<Buffer> buffers_;
  LaunchList list_;
  std::set<std::string> kernels_;
  std::vector<std::string> notes_;
  int64_t workspace_bytes_ = 0, constant_bytes_ = 0;
};

class Interpreter {
 public:
  Interpreter(const SourceText& source, const Outline& outline, const Symbols& symbols, bool ptx,
              const LaunchFunctionLimits& limits, ListBuilder* list);

  void Run(const Function& launch, std::vector<Value> arguments);
  const FunctionSyntax& Syntax(const Function& function);
  Type Resolve(const TypeSyntax& syntax);  // throws for unknown types

 private:
  enum class Flow { kNormal, kBreak, kContinue, kReturn };
  // A running function: its names, innermost block last.
  struct Frame {
    std::string scope;  // namespace, "ns::"
    std::vector<std::map<std::string, Cell*>> blocks;
    Bindings bindings;
    Value result = MakeVoid();
    Type result_type = TypeNamed("auto");
  };
  struct Depth;
  struct BlockScope;
  // The target of an assignment: a cell, or one extent of a dim3 in it.
  struct Place {
    Cell* cell = nullptr;
    int extent = -1;
  };
  struct CallArgument {
    Value value;
    Cell* cell = nullptr;  // of a variable; else null
    size_t at = 0;
  };
  using Builtin = Value (Interpreter::*)(const Expr& call, const std::vector<Value>& arguments);

  void Step(size_t at);
  Cell* NewCell(Value value, bool is_const);
  Frame& frame() { return *frame_; }

  // statements.cc
  Flow Execute(const Stmt& statement);
  Flow ExecuteBlock(const std::vector<StmtPtr>& statements, size_t from);
  Flow ExecuteLoop(const Stmt& statement);
  Flow ExecuteRangeFor(const Stmt& statement);
  Flow ExecuteSwitch(const Stmt& statement);
  Flow ExecuteReturn(const Stmt& statement);
  void Declare(const Declarator& declarator);
  Value Initial(const Declarator& declarator, const Type& type);
  Value DeclareArray(const Declarator& declarator, const Type& element);

  // expressions.cc
  Value Evaluate(const Expr& expr);
  Value EvaluateKind(const Expr& expr);
  void RequireValue(size_t at, const Value& value) const;
  Value EvaluateName(const Expr& expr);
  Value EvaluateUnary(const Expr& expr);
  Value EvaluateBinary(const Expr& expr);
  Value EvaluateAssign(const Expr& expr);
  Value EvaluateStep(const Expr& expr, bool postfix);
  Value EvaluateAddress(const Expr& expr);
  Value EvaluateIndex(const Expr& expr);
  Value EvaluateMember(const Expr& expr);
  Value EvaluateSizeof(const Expr& expr);
  Value EvaluateList(const Expr& expr);
  Value EvaluateLambda(const Expr& expr);
  Value EvaluateConstruct(const Expr& expr);
  std::vector<Value> EvaluateArguments(const Expr& call, size_t from);

  // expressions.cc: places
  std::optional<Place> FindPlace(const Expr& expr);  // none: not a variable
  Place RequirePlace(const Expr& expr);
  Value Read(const Place& place) const;
  void Write(size_t at, const Place& place, const Value& value);
  Cell* ElementOf(size_t at, const ArrayPointer& array, const Value& index);
  Cell* FieldOf(size_t at, Record* record, const Type& type, const std::string& name);
  Value NewRecord(const Type& type);
  Value Converted(size_t at, const Value& value, const Type& to);  // lists also to records and arrays

  // names.cc
  Cell* FindVariable(const std::string& name);
  Cell* FindConstant(const std::string& name);
  void EvaluateConstants(size_t index);
  void EvaluateEnum(const Constants& constants);
  void DeclareConstants();
  const std::vector<const Function*>& FindFunctions(const std::string& name) const;
  std::vector<std::string> Qualified(const std::string& written) const;
  const Alias* FindAlias(const std::string& name) const;
  std::string TypeArgumentText(const TypeSyntax& type);
  std::string TemplateArgumentText(const TemplateArgument& argument);
  Value KernelNamed(const Expr& expr, const Function* kernel, const std::string& name);
  std::string KernelList() const;

  // calls.cc
  Value EvaluateCall(const Expr& expr);
  Value CallFunction(const Expr& call, const std::vector<const Function*>& candidates);
  Value CallClosure(const Expr& call, const Closure& closure);
  std::vector<CallArgument> CallArguments(const Expr& call);
  Value RunBody(size_t at, const std::vector<Parameter>& parameters, const Stmt& body, Frame callee,
                const std::vector<CallArgument>& arguments);
  void BindParameter(const Parameter& parameter, const CallArgument* argument);
  void BindTemplate(const Expr& name, const FunctionSyntax& syntax,
                    const std::vector<CallArgument>& arguments, Frame* callee);
  void BindRest(const Expr& name, const FunctionSyntax& syntax, const std::vector<CallArgument>& arguments,
                Frame* callee);

  // calls.cc: kernel launches
  Value EvaluateLaunch(const Expr& expr);
  void Launch(size_t at, KernelReference kernel, const LaunchConfiguration& configuration,
              const std::vector<Value>& arguments, const std::vector<size_t>& places);
  Extents ExtentsOf(size_t at, const Value& value, const char* what);
  LaunchArgument ArgumentOf(size_t at, const Value& value);
  void DeduceKernel(size_t at, const std::vector<Value>& arguments, KernelReference* kernel);
  void DeducePack(size_t at, const std::vector<Value>& arguments, const FunctionSyntax& syntax,
                  KernelReference* kernel);
  void CheckArguments(size_t at, const KernelReference& kernel, const std::vector<Value>& arguments,
                      const std::vector<size_t>& places);
  const KernelReference& RequireKernel(size_t at, const Value& value);

  // builtins.cc, cuda_calls.cc
  Builtin FindBuiltin(const std::string& name) const;
  static std::string PlainName(const std::string& name);
  void Count(const Expr& call, const std::vector<Value>& arguments, size_t low, size_t high) const;
  Value Workspace(const Expr& call, const std::vector<Value>& arguments);
  Value CeilDiv(const Expr& call, const std::vector<Value>& arguments);
  Value MinMax(const Expr& call, const std::vector<Value>& arguments);
  Value Absolute(const Expr& call, const std::vector<Value>& arguments);
  Value RoundUp(const Expr& call, const std::vector<Value>& arguments);
  Value PowerOfTwo(const Expr& call, const std::vector<Value>& arguments);
  Value FloatingFunction(const Expr& call, const std::vector<Value>& arguments);
  Value Same(const Expr& call, const std::vector<Value>& arguments);
  Value Limits(const Expr& call, const std::vector<Value>& arguments);
  Value Assert(const Expr& call, const std::vector<Value>& arguments);
  Value ClusterOption(const Expr& call, const std::vector<Value>& arguments);
  Value LaunchOption(const Expr& call, const std::vector<Value>& arguments);
  Value MemorySetCall(const Expr& call, const std::vector<Value>& arguments);
  Value MemoryCopyCall(const Expr& call, const std::vector<Value>& arguments);
  Value Ignored(const Expr& call, const std::vector<Value>& arguments);
  Value ConstantCall(const Expr& call, const std::vector<Value>& arguments);
  Value MemoryToSymbol(const Expr& call, const std::vector<Value>& arguments);
  Value LaunchKernelEx(const Expr& call, const std::vector<Value>& arguments);
  Value LaunchKernelCall(const Expr& call, const std::vector<Value>& arguments);
  Value TensorMapCall(const Expr& call, const std::vector<Value>& arguments);
  void ReadAttributes(size_t at, Record* config, LaunchConfiguration* configuration);
  const ConstantVariable& SymbolNamed(const Expr& expr);
  Value Uninitialised(const Type& type);
  std::vector<Value> ElementsOf(size_t at, const Value& value);
  static void AppendBytes(const Value& number, std::vector<uint8_t>* bytes);

  const SourceText& source_;
  const Outline& outline_;
  const bool ptx_;
  const LaunchFunctionLimits& limits_;
  ListBuilder* list_;
  std::map<std::string, std::vector<const Function*>> functions_;  // qualified
  std::map<std::string, const Alias*> aliases_;                    // qualified
  std::map<std::string, Cell*> symbols_;
  std::map<std::string, Cell*> constants_;                     // evaluated ones, qualified
  std::map<std::string, std::vector<size_t>> constant_names_;  // where a name may be declared
  std::vector<char> constant_states_;  // of outline_.constants: 0 untouched, 1 running, 2 done
  std::map<const Function*, std::unique_ptr<FunctionSyntax>> syntax_;
  std::deque<TypeInfo> enum_types_;
  std::map<std::string, const TypeInfo*> enums_;  // qualified
  std::deque<Cell> cells_;
  std::deque<Array> arrays_;
  std::deque<Record> records_;
  std::vector<StmtPtr> constant_syntax_;
  Frame* frame_ = nullptr;
  int64_t steps_ = 0;
  int depth_ = 0, calls_ = 0;
};

// What to write instead of an unsupported name: "use workspace<float>(count)"; empty for names without
// advice. launch_function.cc.
std::string AdviceFor(const std::string& name);

inline constexpr int kMaxDepth = 800;  // of evaluation, which is recursive
inline constexpr int kMaxCalls = 64;   // of nested function calls

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

// The arguments of launch: one pointer for each tensor of the problem, and a null stream where one is
// declared. Registers the tensors with `list`. Throws LaunchException with the required signature where the
// parameters differ. launch_function.cc.
std::vector<Value> LaunchArguments(const SourceText& source, const SizedProblem& problem,
                                   const Function& launch, size_t name_at, Interpreter* interpreter,
                                   ListBuilder* list);

}  // namespace kevin::launch
