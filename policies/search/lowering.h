#pragma once
// Inside lower*.cc: the walk over a graph. A Value is a tensor that is computed where it is read: a function from an
// index to an expression. Stored makes a buffer of it.
//
// START HERE for a new operation: each group of operations (Elementwise, View, ...) has a table in its lower_*.cc and
// returns false for an operation that it does not know.

#include <functional>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "policies/search/graph.h"
#include "policies/search/lower.h"
#include "policies/search/stage_parts.h"

namespace kevin::search {

using Index = std::vector<ExprPtr>;
using Shape = std::vector<int64_t>;
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Value;
using ValuePtr = std::shared_ptr<Value>;

struct Value {
  std::string dtype;
  Shape shape;
  std::function<ExprPtr(const Index&)> at;
  int buffer = -1;  // where all of it is stored, contiguous; -1: nowhere
  int cost = 0;     // arithmetic at one index, as CostOf counts it
  // Of a concatenation: its parts along a dimension. Stored writes each to its place.
  std::vector<ValuePtr> parts;
  int64_t part_dim = 0;
};

Type TypeOf(const std::string& dtype);
int64_t Count(const Shape& shape);
bool IsFloating(const std::string& dtype);

// A product and a softmax that looked like attention and are not (lower_attention.cc). Lower starts again without.
class PatternMismatch {};

class Lowering {
 public:
  explicit Lowering(const Graph& graph, const Task& task, bool finds_attention = true);
  Program Run();

  // --- Values ---
  static ValuePtr Constant(double value, const std::string& dtype);
  ValuePtr Lazy(const std::string& dtype, const Shape& shape, std::function<ExprPtr(const Index&)> at,
                int cost = 0);
  // The value in memory: itself where it is stored, else after a stage that stores it.
  ValuePtr Stored(const ValuePtr& value);
  // For an operand that is read many times: as it is if it is a plain read, else stored.
  ValuePtr Plain(const ValuePtr& value);
  // The value with its arithmetic stored if it costs more than `limit`.
  ValuePtr Cheap(const ValuePtr& value, int limit);
  // At an index of the broadcast shape.
  static ExprPtr AtBroadcast(const ValuePtr& value, const Index& index);
  static Shape BroadcastShape(const std::vector<ValuePtr>& values);
  // Elementwise over broadcast operands, each converted to `type` first.
  using ElementFunction = std::function<ExprPtr(const std::vector<ExprPtr>&)>;
  ValuePtr Map(const std::vector<ValuePtr>& values, const std::string& dtype, Type type,
               const ElementFunction& f);
  // The same for float arithmetic whose result has the type of the first value.
  ValuePtr MapFloat(const std::vector<ValuePtr>& values, const ElementFunction& f);

  // --- Input-outputs (in_place.cc) ---
  // The index and the value of the element that a point overwrites.
  using Overwriting = std::function<std::pair<Index, ExprPtr>(const Index& place)>;
  // Where `self`, the node's argument of that name, is an input-output as it is now: overwrites elements in its buffer, one
  // for each point of `places`, and sets the node's result. At once where nothing else reads the values from before; at the
  // end where the result is only the value after the call. False, and nothing is done, elsewhere.
  bool OverwriteInPlace(const GraphNode& node, const ValuePtr& self, const Shape& places,
                        const Overwriting& element);
  // The value `src` of a slice_scatter that writes all of `self`, of its type: the result is `src`. Else -1. A write through
  // `x[:, 2:4]` ends with such a node.
  int CompleteWrite(const GraphNode& node) const;
  // Sets the result of that node.
  void SetCompleteWrite(const GraphNode& node);

  // --- Arguments of a node ---
  bool Has(const GraphNode& node, const char* name) const;           // present and not null
  ValuePtr Tensor(const GraphNode& node, const char* name);          // also a number, as a constant
  ValuePtr OptionalTensor(const GraphNode& node, const char* name);  // null where absent
  std::vector<ValuePtr> Tensors(const GraphNode& node, const char* name);
  double Number(const GraphNode& node, const char* name, double fallback) const;
  int64_t Integer(const GraphNode& node, const char* name, int64_t fallback) const;
  bool Flag(const GraphNode& node, const char* name, bool fallback) const;
  std::string Word(const GraphNode& node, const char* name, const std::string& fallback) const;
  Shape Integers(const GraphNode& node, const char* name) const;  // a number is a list of one
  // A list of `rank` integers; one integer stands for all.
  Shape IntegersFor(const GraphNode& node, const char* name, size_t rank, int64_t fallback) const;
  // The dims of a reduction, sorted, none negative; all where the argument is absent or empty.
  std::vector<int> Dims(const GraphNode& node, const char* name, size_t rank) const;
  const GraphValue& ResultOf(const GraphNode& node, size_t at = 0) const;
  void Set(const GraphNode& node, const ValuePtr& value, size_t at = 0);
  bool IsUsed(const GraphNode& node, size_t result) const;  // by a live node or as an output

  // --- Stages ---
  Loop NewLoop(int64_t extent);
  static ExprPtr Var(const Loop& loop) { return Variable(loop.variable, loop.extent); }
  std::vector<Loop> NewLoops(const Shape& shape);
  static Index Vars(const std::vector<Loop>& loops);
  int NewWorkspace(const std::string& name, const std::string& dtype, int64_t elements);
  // A stored value in a new workspace, for the stage that is about to be added.
  ValuePtr NewStored(const std::string& name, const std::string& dtype, const Shape& shape);
  void Add(const std::string& name, decltype(Stage::work) work, double flops = 0);
  // Sum, max and so on of `value` over `dims`; `after` maps the result (null: as it is). Shape without the dims, or with
  // ones for `keep`.
  ValuePtr Reduce(const std::string& op, const ValuePtr& value, const std::vector<int>& dims, bool keep,
                  const std::string& dtype, const std::function<ExprPtr(const ExprPtr&)>& after = nullptr);
  struct Normaliser {
    ValuePtr shift, sum;  // the maximum, and the sum of exp(x - maximum); dims kept as 1
  };
  Normaliser ExponentialSum(const ValuePtr& x, const std::vector<int>& dims);
  // `masked_is_zero`: rows that are -inf throughout give 0 instead of NaN; not of logarithms.
  ValuePtr Softmax(const ValuePtr& x, int dim, bool is_log, bool masked_is_zero = false);
  struct Moments {
    ValuePtr mean, spread;  // float32, dims kept as 1
  };
  // spread = of_variance(variance), with `correction` as torch.var has it. x should be cheap: it is read twice.
  Moments MeanAndVariance(const ValuePtr& x, const std::vector<int>& dims, double correction,
                          const std::function<ExprPtr(const ExprPtr&)>& of_variance);
  // (x - mean) * inverse * weight + bias; weight and bias may be null.
  ValuePtr Normalise(const ValuePtr& x, const ValuePtr& mean, const ValuePtr& inverse, const ValuePtr& weight,
                     const ValuePtr& bias);
  ValuePtr Running(const std::string& op, const ValuePtr& x, int dim, const std::string& dtype);
  // result 0 = sum over k of lhs(batch, m, k) * rhs(batch, n, k), stored as `shape` at index(batch, m, n).
  struct Product {
    Shape batch, m, n, k;
    std::function<ExprPtr(const Index& batch, const Index& m, const Index& k)> lhs;
    std::function<ExprPtr(const Index& batch, const Index& n, const Index& k)> rhs;
    std::function<ExprPtr(const Index& batch, size_t k)> limit;                         // may be empty
    std::function<Index(const Index& batch, const Index& m, const Index& n)> index;     // of the result
    std::function<ExprPtr(const Index& batch, const Index& m, const Index& n)> inside;  // may be empty
    std::function<ExprPtr(const ExprPtr& result, const Index& index)> after;            // may be empty
  };
  ValuePtr Multiply(const std::string& name, const std::string& dtype, const Shape& shape,
                    const Product& product);
  // One result for each point of `outer`: `op` over `inner` of x at `read` where `inside` holds.
  ValuePtr Window(const std::string& op, const ValuePtr& x, const Shape& out_shape,
                  const std::vector<Loop>& outer, const std::vector<Loop>& inner, const Index& read,
                  const ExprPtr& inside, const std::function<ExprPtr(const ExprPtr&)>& after);
  ValuePtr Pool(const GraphNode& node, size_t spatial, bool is_max);
  ValuePtr AdaptivePool(const GraphNode& node, size_t spatial, bool is_max);
  ValuePtr Convolve(const GraphNode& node, size_t spatial);
  ValuePtr ConvolveTransposed(const GraphNode& node, size_t spatial);
  ValuePtr Einsum(const GraphNode& node);
  ValuePtr LinearOfParts(const ValuePtr& x, const ValuePtr& weight, const ValuePtr& bias);
  // a (..., m, k) x b (..., k, n) + bias, with broadcast batches; vectors as torch.matmul takes them.
  ValuePtr MatMul(const ValuePtr& a, const ValuePtr& b, const std::string& name,
                  const ValuePtr& bias = nullptr);

  // --- Views used by several groups ---
  ValuePtr Reshape(const ValuePtr& value, const Shape& shape);
  ValuePtr Permute(const ValuePtr& value, const std::vector<int>& order);
  ValuePtr Cat(const std::vector<ValuePtr>& parts, int64_t dim, const std::string& dtype);
  ValuePtr Unsqueeze(const ValuePtr& value, size_t at);
  ValuePtr Sliced(const ValuePtr& value, size_t dim, int64_t start, int64_t size, int64_t step = 1);
  ValuePtr Expand(const ValuePtr& value, const Shape& shape);

  // --- lower_attention.cc ---
  struct AttentionParts;
  struct AttentionPattern;
  ValuePtr Attend(AttentionParts parts, const std::string& dtype, const Shape& shape);
  ValuePtr DotProductAttention(const GraphNode& node);
  ValuePtr AttendPattern(const GraphNode& node, AttentionPattern& pattern);
  ValuePtr Noted(const GraphNode& node, Index AttentionPattern::*where,
                 const std::shared_ptr<AttentionPattern>& pattern);

  // --- lower_recurrent.cc ---
  // Adds the stages that `body` adds as a Repeat over `times`.
  void AddRepeat(const std::string& name, const Loop& times, const std::function<void()>& body);

  // --- lower_loops.cc ---
  // An integer argument that may grow with the iteration of the loop around the node.
  ExprPtr MovingInteger(const GraphNode& node, const char* name, int64_t fallback);

  const Task& task() const { return task_; }

 private:
  bool Elementwise(const GraphNode& node);  // lower_elementwise.cc
  bool View(const GraphNode& node);         // lower_views.cc
  bool Indexing(const GraphNode& node);  // lower_indexing.cc, _scatter, _orders, _resampling, _interpolation
  bool Creation(const GraphNode& node);  // lower_creation.cc
  bool Reduced(const GraphNode& node);   // lower_reductions.cc
  bool Normalised(const GraphNode& node);  // lower_norms.cc
  bool Windowed(const GraphNode& node);    // lower_windows.cc
  bool Contracted(const GraphNode& node);  // lower_contractions.cc
  bool Attended(const GraphNode& node);    // lower_attention.cc
  bool Recurrent(const GraphNode& node);   // lower_recurrent.cc
  bool Loss(const GraphNode& node);        // lower_losses.cc
  bool Composed(const GraphNode& node);    // lower_compositions.cc
  bool Loop_(const GraphNode& node);       // lower_loops.cc: a kept loop

  void AddArguments();
  void Walk(const std::vector<GraphNode>& nodes);
  bool IsDearToRepeat(const ValuePtr& value);
  void Lower1(const GraphNode& node);
  void RefuseEmpty(const GraphNode& node) const;
  void StoreTo(const ValuePtr& value, int buffer, const std::string& name);
  void StoreOutputs();
  void StoreInOuts();
  // Marks what the outputs need; the rest is not lowered.
  void CountUses(const std::vector<GraphNode>& nodes);
  void FindAttention();
  void LowerLoop(const GraphNode& node, const Loop& times);
  bool MovingView(const GraphNode& node);
  bool IsOutside(const ValuePtr& value) const;
  ValuePtr HoistedMatMul(const ValuePtr& a, const ValuePtr& b, const std::string& name, const ValuePtr& bias);

  const Graph& graph_;
  const Task& task_;
  Program program_;
  std::vector<Stage>* stages_;  // where Add puts stages: the program, or the body of a Repeat
  int variables_ = 0;
  std::map<int, ValuePtr> values_;  // of the graph
  std::map<int, int> uses_;         // by live nodes, reads of shapes left out
  std::map<int, int> current_;      // buffer of an input-output -> the value of the graph that it holds
  struct Overwrite {
    std::string name;
    Shape places, shape;
    std::string dtype;
    Overwriting element;
  };
  std::map<int, Overwrite> overwritten_at_end_;  // by the value of the graph
  void WriteElements(int buffer, const Overwrite& overwrite);
  int LastOutputOf(int inout) const;
  int FinalValueOf(int inout) const;  // the same value by the first of its numbers
  bool IsOnlyFinal(int value, int inout);
  std::map<int, int> same_as_;  // results of complete writes -> their sources
  bool finds_attention_;
  std::map<int, std::shared_ptr<AttentionPattern>> attention_;  // by the results of its nodes
  ExprPtr iteration_;  // of the loop that is being lowered; null: none
  struct LoopScope {
    Loop times;
    int buffers = 0;              // those before were written before the loop
    std::set<int> hoisted;        // and these
    std::vector<Stage>* outside;  // the stages around the loop
  };
  LoopScope* scope_ = nullptr;
  std::string name_;             // of the node that is being lowered
  std::list<GraphNode> copies_;  // nodes by other names (`view_copy` is view); values refer to them
};

}  // namespace kevin::search
