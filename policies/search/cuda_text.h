#pragma once
// Internal to the CUDA writer: the text under construction, its kernels, and expressions as C++. WriteCuda
// (write_cuda.cc) makes one CudaText, calls one function a stage, and joins the parts.
//
// A stage's function makes CudaKernels: it names the buffers, numbers and workspaces that the kernel's body reads, writes
// the body, and launches it. Kernels of equal text are one function (FunctionTable).
//
// START HERE for a new way to compute a stage: write_cuda_pointwise.cc is the shortest example.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "policies/search/graph.h"
#include "policies/search/program.h"
#include "policies/search/write.h"

namespace kevin::search {

// --- What not every device of compute capability 8.0 and above has ---

inline bool HasCudaClusters(const TaskDevice& device) { return device.capability >= 90; }
// wgmma and what its kernels use besides (TMA, setmaxnreg by warpgroup): of 9.0 alone, not of later devices.
inline bool HasCudaWgmma(const TaskDevice& device) { return device.capability == 90; }

// --- The text ---

// How far kernels go to serve several stages, each step at some cost.
enum class CudaSharing {
  kNone,   // literals
  kSizes,  // sizes, strides and constants are holes, so that stages which differ only in them share a kernel
  kForms,  // and places in buffers; few forms of tiles and groups are used, whatever the sizes
};

// What the writing of one stage added to a text, so that an equal stage adds the same without being written.
struct CudaRecipe {
  struct Argument {
    int buffer = -1, workspace = -1;  // the place among those of the recipe; one of the two
  };
  struct Step {
    std::string line;         // of AddLine; else
    std::string type, count;  // of AddWorkspace; else
    bool zeroed = false;
    size_t call = 0;  // a launch
    std::vector<Argument> arguments;
  };
  std::vector<Step> steps;
  std::vector<int> buffers;             // of the stage, sorted
  std::vector<std::string> workspaces;  // names
  bool is_repeatable = true;            // false: an argument is neither a buffer nor a workspace
};

class CudaText {
 public:
  // `owners`: by stage, the stage whose knobs it uses (CudaKnobOwners).
  CudaText(const Program& program, const Task& task, const Setting& setting, CudaSharing sharing,
           std::vector<int> owners = {});

  const Program& program() const { return program_; }
  const Task& task() const { return task_; }
  const TaskDevice& device() const { return task_.device; }

  // A number that equal stages may differ in: a literal, or a hole where texts are shared. Not for template arguments,
  // array sizes or launch bounds. An `int` in the text where it fits.
  std::string Number(int64_t value) const;
  std::string Float(double value) const;
  CudaSharing sharing() const { return sharing_; }
  bool shares() const { return sharing_ != CudaSharing::kNone; }

  // A knob of the stage that is being written: `name` without the stage's suffix ("THREADS"). The value of the setting,
  // or `fallback` where the stage has no such knob. Text: the identifier of a knob with in_text, else the literal.
  int64_t KnobValue(const std::string& name, int64_t fallback) const;
  std::string KnobText(const std::string& name, int64_t fallback) const;

  // Statements of `launch`, in order. `{call N}` lines come from CudaKernel::Launch.
  void AddLine(const std::string& line);
  // A workspace of the launch function beyond the program's buffers (partial results); "w3". `type` as in C++.
  std::string AddWorkspace(const std::string& type, const std::string& count, bool zeroed = false);
  // Text at namespace scope before the kernels, once (the key is the text itself).
  void AddDeclarations(const std::string& text);

  // The stage that is being written (its number among all, bodies of Repeat included); names knobs and comments.
  int stage_number() const { return stage_number_; }
  // Variables of Repeat stages around it, which kernels get as parameters: id -> name in `launch`.
  const std::map<int, std::string>& repeat_variables() const { return repeat_variables_; }
  std::map<int, std::string>& repeat_variables() { return repeat_variables_; }
  void BeginStage(int number);

  // The argument of `launch` (or of the workspace) where the buffer begins: "in0 + weight_offset"; of a stage with
  // common offsets, where they lead.
  std::string BufferArgument(int buffer) const;
  void SetCommonOffsets(std::map<int, int64_t> offsets) { common_offsets_ = std::move(offsets); }
  // "float", "__half", "__nv_bfloat16", "long", "int", "bool"
  std::string ElementType(int buffer) const;
  int ElementBytes(int buffer) const;

  // From now on `recipe` gets what is added; null: none does.
  void Record(CudaRecipe* recipe) { recipe_ = recipe; }
  // The same for the buffers of another stage.
  void Repeat(const CudaRecipe& recipe, const std::vector<int>& buffers);

  FunctionTable& table() { return table_; }
  std::string Finish();
  size_t kernels() const { return table_.definitions(); }  // so far

 private:
  const Program& program_;
  const Task& task_;
  const Setting& setting_;
  CudaSharing sharing_;
  FunctionTable table_;
  std::vector<int> owners_;
  int stage_number_ = 0, workspaces_ = 0;
  std::map<int, std::string> repeat_variables_;
  std::map<int, int64_t> common_offsets_;  // by buffer
  std::vector<std::pair<std::string, int64_t>>
      lines_;  // a statement, or the number of a call (then the text is empty)
  std::vector<std::string> declarations_, workspace_lines_;
  CudaRecipe* recipe_ = nullptr;
  friend class CudaKernel;
};

// By the number of a stage (LeafStages) the first stage of equal form: equal stages have one set of knobs.
std::vector<int> CudaKnobOwners(const Program& program);
// "THREADS_3": the knob `name` of stage 3.
std::string CudaKnobName(const std::string& name, int stage);

// --- One kernel ---

class CudaKernel {
 public:
  // `read` and `written`: buffers of the stage. A buffer that is only read is `const T* __restrict__`.
  CudaKernel(CudaText& text, const Stage& stage);

  CudaText& text() { return text_; }
  // The parameter of the buffer ("b0"), numbered by first use.
  std::string Buffer(int buffer);
  // A parameter beyond buffers: "float* __restrict__ partial" gets `argument` ("w3").
  void AddParameter(const std::string& parameter, const std::string& argument);
  std::string Number(int64_t value) const { return text_.Number(value); }
  std::string Float(double value) const { return text_.Float(value); }
  std::string Fresh(const std::string& prefix = "t");  // a name not used before in this kernel
  bool IsReadOnly(int buffer) const { return writes_.count(buffer) == 0; }
  // Variables of Repeat stages around this one become parameters on first use.
  std::string RepeatVariable(int variable);

  // Ends the kernel: `void name(...)` with `body`, launched as <<<grid, block[, shared]>>>; texts of integers in
  // `launch`, e.g. "ceil_div(100, THREADS)". `bounds` is the text of launch bounds ("256"); `attributes` e.g.
  // "__cluster_dims__(4, 1, 1)".
  void Launch(const std::string& name, const std::string& body, const std::string& grid,
              const std::string& block, const std::string& bounds, const std::string& shared = "",
              const std::string& attributes = "");

 private:
  void Note(size_t call, CudaRecipe& recipe) const;

  CudaText& text_;
  std::set<int> reads_, writes_;
  std::map<int, std::string> names_;
  std::map<int, std::string> repeat_names_;
  std::vector<std::string> parameters_, arguments_;
  std::vector<int> argument_buffers_;  // by argument; -1: none
  std::map<std::string, int> fresh_;
};

// --- Expressions ---

// Prints expressions as operands, with statements for what is used more than once. Copy it to open a nested scope: names
// of the outer one stay known. Floats are `float`, kInt `int` where the bounds allow and `long` elsewhere, kBool `bool`.
class CudaPrinter {
 public:
  explicit CudaPrinter(CudaKernel& kernel) : kernel_(&kernel) {}
  void SetVariable(int id, const std::string& text) { variables_[id] = text; }
  void SetResult(int id, const std::string& text) { results_[id] = text; }
  // The load with this key is `text` ("x0.at[w]"): it is done, and its guard is taken as a plain selection.
  void SetLoad(const std::string& key, const std::string& text) { loads_[key] = text; }
  // The operand; the statements before it are added to lines().
  std::string Value(const ExprPtr& expr);
  std::string& lines() { return lines_; }
  std::string TakeLines() { return std::exchange(lines_, ""); }
  CudaKernel& kernel() { return *kernel_; }

 private:
  std::string Node(const Expr& e);
  std::string Named(const Expr& e, const std::string& text);
  std::string IntegerText(const Expr& e);
  std::string GuardText(const Expr& e);
  std::string LoadText(const Expr& e);
  bool HasOpenLoad(const ExprPtr& e) const;

  CudaKernel* kernel_;
  std::map<int, std::string> variables_, results_;
  std::unordered_map<std::string, std::string> loads_, known_;
  std::unordered_map<std::string, int> uses_;
  std::string lines_;
};

// "float", "int", "long" or "bool": the type of the operand that CudaPrinter makes of `expr`.
std::string CudaTypeOf(const Expr& expr);
bool FitsInt(const Expr& expr);  // kInt: the value and what it is computed from need 32 bits

// Whether 32 bits may be too few to count so many points (and a launch's threads beyond the last one), and the type
// that counts them.
constexpr bool IsWideCudaCount(int64_t points) { return points >= int64_t{1} << 31; }
constexpr const char* CudaCountType(int64_t points) {
  return IsWideCudaCount(points) ? "unsigned long" : "unsigned";
}
// Statements that set `variables` ("const int i3 = ...") of loops from a row-major number `linear` over them (of
// CudaCountType), and name them in the printer. Extents are Number()s.
std::string DecodeLoops(CudaPrinter& printer, const std::vector<Loop>& loops, const std::string& linear);
int64_t Points(const std::vector<Loop>& loops);

// A float as a literal: "0.5f", "Infinity()".
std::string CudaFloat(double value);
// `value` (an operand) stored to the buffer: "b1[offset] = Narrow<__half>(v);\n"
std::string StoreText(CudaKernel& kernel, int buffer, const std::string& offset, const std::string& value);

// --- Loads of a stage, and packs of neighbouring elements ---

// A load in a stage's expressions, with what must hold for it to be safe (the guards around it; null: always).
struct CudaLoad {
  const Expr* load = nullptr;
  ExprPtr condition;
};
// All loads in and below the expressions, those that others depend on first. Expressions may be null.
std::vector<CudaLoad> LoadsOf(const std::vector<ExprPtr>& exprs);

// Whether the value of a kInt expression is a multiple of `factor` for all values of its variables.
bool IsMultiple(const ExprPtr& expr, int64_t factor);
// `expr` with the loop variable `variable` = width * variable' + w, where variable' keeps the id and counts packs, and w
// is a new variable `w_id` from 0 to width - 1.
ExprPtr InPacks(const ExprPtr& expr, const Loop& loop, int64_t width, int w_id);

// How neighbouring elements along `w_id` (from InPacks) lie: kPack: adjacent, aligned to all; kSame: one element;
// kEach: anything else.
enum class Neighbours { kSame, kPack, kEach };
Neighbours NeighboursOf(const Buffer& buffer, const ExprPtr& offset, const ExprPtr& condition, int w_id,
                        int64_t width);

// Loads ahead of the arithmetic that needs them, so that many are under way at once. With the statements in one unrolled
// loop and the arithmetic in the next, `slot` is "[u]" and `slots` "[kEach]"; both are empty without such loops.
class CudaLoads {
 public:
  CudaLoads(CudaKernel& kernel, std::vector<CudaLoad> loads, int w_id, int64_t width, std::string slot,
            std::string slots);
  std::string Declarations() const;
  // With the loop variables known to `printer`. `once`: the elements are not needed again soon.
  std::string Statements(CudaPrinter printer, bool once) const;
  // The statements that copy all values to or from shared memory, where load i lies at `at(i)` (text of a pack).
  std::string Copies(bool to_registers, const std::function<std::string(size_t load)>& at) const;
  // Names the values of neighbour `w` (text of an integer) in `printer`.
  void Bind(CudaPrinter& printer, const std::string& w) const;
  size_t size() const { return loads_.size(); }
  // "Pack<4>", "Pack<4, long>", or "float" of a value that is the same for all neighbours.
  std::string TypeOf(size_t load) const;
  int64_t Registers() const;

 private:
  struct One {
    CudaLoad load;
    Neighbours neighbours;
    std::string name;
  };
  CudaKernel& kernel_;
  std::vector<One> loads_;
  int w_id_;
  int64_t width_;
  std::string slot_, slots_;
};

// The statements that compute and do stores for `width` neighbours along `w_id`: a loop over w with the arithmetic, then
// packs where they are aligned. `bind` names loads and results of neighbour w in the printer that it gets. `before` is
// more text for the loop's body, made by the printer (accumulators); may be empty.
std::string NeighbourLoop(const CudaPrinter& printer, const std::vector<Store>& stores, int w_id,
                          int64_t width, bool once, const std::function<void(CudaPrinter&)>& bind,
                          const std::function<std::string(CudaPrinter&)>& before = nullptr);
constexpr int kNeighbour = 1 << 28;  // the variable w

// --- Stages (one file each); they add kernels and lines to the text ---

void WriteCudaPointwise(CudaText& text, const Stage& stage, const Pointwise& work);
void WriteCudaReduction(CudaText& text, const Stage& stage, const Reduction& work);
void WriteCudaScan(CudaText& text, const Stage& stage, const Scan& work);
void WriteCudaAttention(CudaText& text, const Stage& stage, const Attention& work);
// A tiled product without assumptions; write_cuda_contraction.cc comes first where it applies.
void WriteCudaPlainContraction(CudaText& text, const Stage& stage, const Contraction& work);

// The fast contraction: false where the work does not suit it (then the plain one is written). Its knobs by their names
// without suffix.
bool WriteCudaContraction(CudaText& text, const Stage& stage, const Contraction& work);
// The products that begin at this stage of the program, in one launch (cuda_product_group.h); how many, 0: none.
size_t WriteCudaProductGroup(CudaText& text, size_t at);
// Knobs by their names without suffix; `stage` is not set.
std::vector<Knob> CudaPointwiseKnobs(const CudaText& text, const Stage& stage, const Pointwise& work);
std::vector<Knob> CudaReductionKnobs(const CudaText& text, const Reduction& work);
std::vector<Knob> CudaScanKnobs(const CudaText& text, const Scan& work);
std::vector<Knob> CudaAttentionKnobs(const Program& program, const Task& task, const Attention& work);
std::vector<Knob> CudaContractionKnobs(const Program& program, const Task& task, const Contraction& work);

// --- The prelude: functions that texts may use; those that occur are included ---
//   Widen(x), Narrow<T>(x)            an element as float, long or bool; a value as element
//   Pack<W> (float at[W]), Load<W>(p), LoadOnce<W>(p), Store<W>(p, pack), StoreOnce<W>(p, pack): aligned packs
//   AcrossWarp<kLanes>(v, combine), AcrossBlock<kThreads>(v, combine)
//   NanMax, NanMin, Infinity(), NotANumber(), Sigmoid, Sign, ...
//   CopyAsync<16 or 4>(to, from, is_there), CommitCopies(), WaitForCopies<kNewer>()
std::string WithCudaPrelude(const std::string& text);

}  // namespace kevin::search
