#pragma once
// The text of one stage in C++: what the writers of the kinds of stages (write_cpp_*.cc) share. Internal to the writer.
//
// A stage becomes one function `static void NAME(Worker& worker, const float* __restrict__ b0, ..., float* b3, long r0)`.
// Its buffers are b0, b1, ... in the order of use, loops over `Repeat` are its arguments r0, r1, ... Every thread of the
// call runs it: what has an effect lies inside of loops over jobs (CppOpenJobs), which the threads share, and which end
// for all threads together (write_cpp_team.cc). The body is a list of nested scopes. CppPrinter prints expressions into them: every value is computed in the outermost scope where it is known,
// and once. Values exist in two forms: scalar (float, long, bool) and lanes (Vec, IntVec; a condition is an IntVec of
// 0 and -1), where one variable is bound to consecutive numbers.
//
// START HERE for a new kind of stage: write a function like CppPointwise that opens loops, binds their variables,
// prints values and stores, and call it in write_cpp.cc.

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "policies/search/graph.h"
#include "policies/search/write.h"

namespace kevin::search {

// A buffer of a stage: `Scratch<which>(bytes)` of the prelude. `launch` makes it large enough for all stages before the
// threads start; the stage asks for its address alone.
struct CppScratch {
  int which = 0;  // 0 to 15
  int64_t bytes = 0;
  bool by_thread = false;  // so many for each thread
};

// How far functions go to serve several stages.
enum class CppSharing {
  kNone,  // literals
  kLarge,  // numbers above 16, and constants, are holes, so that stages which differ only in them share a function
  kAll,  // all numbers, and the places in buffers
};

// What the text of one stage is made of. Every writer of stages (the contraction too) may use all of it.
struct CppStage {
  const Program& program;
  const Task& task;
  const Setting& setting;
  CppSharing sharing = CppSharing::kNone;
  std::vector<int> buffers = {};          // of the program; buffers[i] is called "b<i>"
  std::set<int> written = {};             // of them
  std::map<int, std::string> outer = {};  // variables of Repeat loops -> names of arguments
  std::vector<std::string> helpers =
      {};  // definitions that precede the function; equal ones are written once
  std::vector<CppScratch> scratch = {};
  std::string body = {};  // the result

  // A number in the text. Not where the language needs a constant: there, std::to_string.
  std::string Number(int64_t value) const;
  std::string Float(double value) const;
  // The value of the knob `name`, or `otherwise` where the setting has none.
  int64_t Value(const std::string& name, int64_t otherwise) const;
  // The same where the text may read the constant instead of its value: the knob's name. Such a knob is `in_text`.
  std::string Constant(const std::string& name, int64_t otherwise) const;
  std::string Name(int buffer) const;     // "b2"
  std::string Element(int buffer) const;  // "float", "_Float16", "bf16", "long", "int", "bool"
};

// --- Scopes and expressions ---

class CppPrinter {
 public:
  explicit CppPrinter(CppStage& stage);
  // Call when all scopes are closed.
  std::string Text() const;

  // Opens "head {"; an empty head opens a block. Names bound and values printed inside are forgotten at Close.
  void Open(const std::string& head);
  void Close(const std::string& tail = "}");
  void Line(const std::string& text);
  // "for (long v3 = 0; v3 < 17; ++v3) {", and binds the variable. Loops of extent 1 only bind. Returns how many scopes
  // were opened; Close as many.
  int OpenLoops(const std::vector<Loop>& loops);
  void CloseAll(int count);
  // A name that does not occur yet: "acc7".
  std::string Fresh(const std::string& stem);

  // From now on until the current scope is closed. `name` is an expression of type long without side effects that is
  // known in the current scope.
  void Bind(int variable, const std::string& name);
  // In the lanes, the variable is name, name + 1, ... Needs an object `part` in scope: Whole or Part of the prelude.
  // At most one variable at a time.
  void BindLanes(int variable, const std::string& name);
  // `name` is float (long for kInt, bool), or with `lanes` a Vec (IntVec).
  void BindResult(int result, const std::string& name, bool lanes);

  bool IsLanes(const ExprPtr& expr) const;  // whether its value differs between lanes
  // The value; constants and single operations stay expressions, all else is named first. `Scalar` must not differ
  // between lanes. `Lanes` gives a Vec, or an IntVec, whatever the expression is.
  std::string Scalar(const ExprPtr& expr);
  std::string Lanes(const ExprPtr& expr);
  // The loop's variable in lane 0.
  std::string Scalar0(const Loop& loop) const { return loop.extent == 1 ? "0" : lanes_name_; }
  // The store, at the lanes of `part` or at one point. `stream`: around the caches, where the offset has stride 1; the
  // address must then be aligned to the vector.
  void Store(const search::Store& store, bool stream = false);
  // The address of an element for lanes or a scalar: "b2 + (t3 + v1)". With lanes: of the first lane.
  std::string Address(int buffer, const ExprPtr& offset);

 private:
  struct Value {
    std::string text;
    int depth = 0;
    bool lanes = false, named = false, constant = false;
  };
  struct Scope {
    std::string head, text;                         // the head comes after what is hoisted out of the scope
    std::unordered_map<std::string, Value> values;  // by key
    std::vector<int> variables, results;            // bound here
    bool owns_lanes = false;
  };
  struct Binding {
    std::string name;
    int depth = 0;
    bool lanes = false;
  };

  // The variables and results that occur in an expression, once each.
  struct Leaves {
    std::vector<int> variables, results;
  };
  const Leaves& LeavesOf(const ExprPtr& expr) const;
  bool HasLanesVariable(const ExprPtr& expr) const;
  bool HasLanesResult(const ExprPtr& expr) const;

  int Depth() const { return static_cast<int>(scopes_.size()) - 1; }
  int DepthOf(const ExprPtr& expr) const;
  void LineAt(int depth, const std::string& text);
  Value Emit(const ExprPtr& expr);
  Value EmitNew(const ExprPtr& expr);
  Value EmitSum(const Expr& expr, bool lanes);
  Value EmitLoad(const ExprPtr& expr);
  Value EmitGuard(const ExprPtr& expr);
  std::pair<ExprPtr, ExprPtr> SplitCondition(const ExprPtr& condition) const;
  Value EmitByLane(const ExprPtr& expr);
  Value EmitLeaf(const ExprPtr& expr);
  Value EmitOperation(const ExprPtr& expr);
  Value EmitTimesInverse(Value lanes, const Value& divisor, const Expr& expr, Value value);
  Value Named(const Value& value, const ExprPtr& expr);
  // A name for the text, which is computed at that depth; the same for equal texts.
  std::string NamedText(int depth, const std::string& type, const std::string& text);
  Value Splat(const Value& value, const ExprPtr& expr);
  bool FitsLanes(const ExprPtr& expr) const;
  bool NeedsLaneLoop(const ExprPtr& expr) const;
  std::optional<int64_t> LaneStride(const ExprPtr& offset) const;
  void ForEachLane(const std::function<void()>& print);
  std::string KeyOf(const ExprPtr& expr) const;
  std::string TypeOf(const ExprPtr& expr, bool lanes) const;
  void CountUses(const ExprPtr& expr);
  void AtDepth(int depth, const std::function<void()>& print);

  CppStage& stage_;
  // With the expression, which keeps the address from being used again.
  mutable std::unordered_map<const Expr*, std::pair<ExprPtr, Leaves>> leaves_;
  std::vector<Scope> scopes_;
  std::map<int, Binding> variables_, results_;
  std::unordered_map<std::string, int> uses_;  // of the expression being printed, by key
  int lanes_variable_ = -1;
  std::string lanes_name_;
  int lanes_depth_ = 0;
  std::string mask_;         // of the lanes that may load; empty: those of `part`
  bool first_lane_ = false;  // addresses: the lanes' variable stands for its first value
  std::string lane_;         // inside a loop over lanes: its variable
  int floor_ = 0;            // loads stay inside this scope
  int fresh_ = 0;
};

// --- Loops ---

// Joins neighbouring loops where every expression allows it (a row-major pair of loops that is only used as one
// offset), drops loops of extent 1. `exprs` are rewritten. New variables are numbered from `next_variable`.
void CppJoinLoops(std::vector<Loop>& loops, const std::vector<ExprPtr*>& exprs, int& next_variable);
inline constexpr int kCppFirstVariable = 1 << 24;  // for next_variable
// How well the lanes of a vector lie along the variable: the share of loads and stores that are contiguous or do not
// depend on it, less those that are neither.
double CppLaneScore(const std::vector<ExprPtr>& values, const std::vector<Store>& stores, int variable);
int64_t CppCount(const std::vector<Loop>& loops);
// The expressions of stores: values and guards; and pointers to all, offsets too, for CppJoinLoops.
std::vector<ExprPtr> CppValues(const std::vector<Store>& stores);
void CppAddPointers(std::vector<Store>& stores, std::vector<ExprPtr*>& exprs);
// A loop over `count` jobs, numbered by the name `job`; a thread takes some at once. Opens two scopes.
void CppOpenJobs(CppPrinter& print, const std::string& count, const std::string& job,
                 const std::string& at_once);
// The loops: the outer ones, as many as make jobs enough, are shared by the threads. Returns the number of scopes.
int CppOpenParallel(CppPrinter& print, const CppStage& stage, const std::vector<Loop>& loops);
// "Walk<4>(begin, end, [&](auto part, long v, int u) {", with `variable` in the lanes. Close with "});".
// `unroll` may be a constant expression.
void CppOpenWalk(CppPrinter& print, int variable, const std::string& unroll, const std::string& begin,
                 const std::string& end, const std::string& unroll_name = "");
inline void CppOpenWalk(CppPrinter& print, int variable, int unroll, const std::string& begin,
                        const std::string& end) {
  CppOpenWalk(print, variable, std::to_string(unroll), begin, end);
}
// How many lanes one job takes, `least` to `most`, so that there are jobs enough for all threads: a multiple of 64, or
// the extent.
int64_t CppPiece(int64_t extent, int64_t jobs, int64_t least, int64_t most, int threads);
// One parallel loop over `loops` and over pieces of `lanes`; opens them, and gives the bounds of the piece as text.
// Pieces begin at multiples of 64. Returns the number of scopes.
int CppOpenPieces(CppPrinter& print, const CppStage& stage, const std::vector<Loop>& loops, int64_t lanes,
                  int64_t piece, std::string& begin, std::string& end);
// Whether a store may go around the caches, which the knob STREAM decides: an output that is large, whose vectors are
// aligned.
bool CppStreams(const CppStage& stage, const search::Store& store, int lanes_variable,
                const std::vector<Loop>& others);
// "StreamFence();" behind such stores.
void CppFence(CppPrinter& print, const CppStage& stage);

// --- Kinds of stages: write_cpp_*.cc. `stage.body` and `stage.helpers` get the text. ---

void CppPointwise(const Pointwise& work, CppStage& stage);
void CppReduction(const Reduction& work, CppStage& stage);
void CppScan(const Scan& work, CppStage& stage);
void CppAttention(const Attention& work, CppStage& stage);
void CppSimpleContraction(const Contraction& work, CppStage& stage);
// The fast way, in write_cpp_contraction.cc; false, and nothing changed, where it has none.
bool CppContraction(const Contraction& work, CppStage& stage);
// Appends the knobs of the fast way for all contractions of a program. Names are shared by all stages.
void CppContractionKnobs(const Program& program, const std::vector<const Contraction*>& works,
                         const Task& task, std::vector<Knob>& knobs);

// --- Threads (write_cpp_team.cc) ---

// The definitions of Worker and Jobs.
std::string CppTeamText();
// The work of a stage in cycles of one processor, about.
double CppCycles(const Stage& stage);
// Below, a call keeps to one thread: starting a second one would take longer.
inline constexpr double kCppFewCycles = 150e3;

// --- The prelude (write_cpp_prelude.cc) ---

// The definitions that `body` mentions, put before it: LANES, kLanes, INLINE, Vec, IntVec, Splat, Iota, LoadVec,
// StoreVec, Whole, Part, Walk<unroll>(begin, end, step(part, i, u)), Exp, Tanh, ..., Across<count>(vectors, combine),
// StreamFence, Scratch<which>(bytes): a buffer that stays allocated between calls, aligned to 2 MB.
std::string CppWithPrelude(const std::string& body, bool half_lanes);

}  // namespace kevin::search
