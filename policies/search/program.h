#pragma once
// A reference as a list of stages: what is computed, without how. Lower (lower.h) makes it from the graph of the
// reference at one size; Fuse (fuse.h) joins stages; the writers (write_cpp.h, write_cuda.h) make a kernel's text.
// All numbers are known: sizes, strides and offsets are those of one shape. Plain values; any thread.
//
// Every stage reads and writes buffers by flat offsets in elements. Within a stage, points of parallel loops are
// independent. A later stage sees all stores of an earlier one.

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "policies/search/expression.h"

namespace kevin::search {

// --- Buffers ---

struct Buffer {
  std::string name;   // of the tensor, or of what computes it; for comments
  std::string dtype;  // "float32", "float16", "bfloat16", "int64", "int32", "bool"
  int64_t elements = 0;
  int argument = -1;  // the position among the arguments of `launch`; -1: a workspace of the candidate
  // Of a parameter in a block: the constant in scope with its offset in the argument, and its value. Writers add it to
  // the base address.
  std::string base_symbol;
  int64_t base = 0;
  bool is_output = false;  // an argument that `launch` writes
  // A workspace: its place in the one workspace of the candidate, in bytes, a multiple of 256 (PlaceWorkspaces).
  int64_t place = -1;
  // An input-output: an argument that `launch` reads and writes. A stage that stores to it reads it at most at the place
  // of the store itself (HasIndependentPoints); what an earlier stage reads of it is as it was before the call.
  bool is_inout = false;
};

// --- Parts of stages ---

struct Loop {
  int variable = 0;
  int64_t extent = 1;
};

// Stores `value` (converted to the buffer's type) at `offset`, where `guard` holds; null: everywhere.
struct Store {
  int buffer = 0;
  ExprPtr offset, value, guard;
};

// result `result` = `value` combined over the inner loops. `op` is "sum", "product", "max", "min" (NaN wins in both),
// "any", "all", "argmax", "argmin" (the row-major position in the inner loops, kInt; the first of equal ones; NaN is
// the extreme). `value` may read the results of earlier steps, not of its own.
struct Accumulator {
  std::string op;
  ExprPtr value;
  int result = 0;
  int step = 0;  // from 0, ascending
};

// --- Stages ---

struct Pointwise {
  std::vector<Loop> loops;  // all parallel; the last is the innermost
  std::vector<Store> stores;
};

// For each point of `outer` (parallel): the accumulators over `inner`, step by step; then `outer_stores` once and
// `inner_stores` for each point of `inner`; both may read all results. Sums, softmax, norms; also windows (pooling,
// depthwise convolutions), where `inner` is small and the values of neighbouring outer points overlap.
struct Reduction {
  std::vector<Loop> outer, inner;
  std::vector<Accumulator> accumulators;
  std::vector<Store> outer_stores, inner_stores;
};

// result 0 = sum over k of lhs * rhs, for each point of batch x m x n (parallel). `lhs` depends on batch, m and k only,
// `rhs` on batch, n and k only; each is a load, or a guard of a load and 0, or an expression of loads. `stores` read
// result 0. Matrix products, convolutions of all kinds (the weights are lhs: m is the output channel, n the image and
// its positions), transposed convolutions (batch has the phases of the strides).
struct Contraction {
  std::vector<Loop> batch, m, n, k;
  // By k loop: a bound below its extent that depends on batch variables only; null: the extent.
  std::vector<ExprPtr> k_limits;
  ExprPtr lhs, rhs;
  std::vector<Store> stores;
};

// result 0 = the running "sum", "product", "max", "min" or "logsumexp" of `value` along one loop, that element included;
// from the end where `reverse`; without that element where `exclusive`. `stores` are for each point of outer x along.
struct Scan {
  std::vector<Loop> outer;
  Loop along;
  std::string op;
  bool reverse = false, exclusive = false;
  ExprPtr value;
  std::vector<Store> stores;
};

// Attention as one streaming stage. For each point of batch x queries:
//   result 0 = sum over depth of query * key                     for each key
//   score    = an expression over result 0, batch, queries, keys (scale, mask, bias; -inf: not attended)
//   weight   = softmax of score over keys                        (softmax false: weight = score)
//   result 1 = sum over keys of weight * value                   for each point of `width`
// `stores` are over batch x queries x width and read result 1. `query` depends on batch, queries, depth; `key` on
// batch, keys, depth; `value` on batch, keys, width. `causal`: score is -inf wherever key > query.
struct Attention {
  std::vector<Loop> batch, queries, keys, depth, width;
  ExprPtr query, key, score, value;
  bool softmax = true, causal = false;
  std::vector<Store> stores;
  // Of a query whose scores are all -inf, the mask admits no key: result 1 is 0 as scaled_dot_product_attention has it;
  // else NaN, as of a softmax that is written out.
  bool masked_is_zero = false;
};

struct Stage;

// The body's stages in order, for each value of `times` from 0; not parallel. The body reads the variable.
struct Repeat {
  Loop times;
  std::vector<Stage> body;
};

struct Stage {
  std::string name;  // of the operations that it computes: "conv2d + relu"; for comments and summaries
  std::variant<Pointwise, Reduction, Contraction, Scan, Attention, Repeat> work;
  double flops = 0, bytes = 0;  // the usual counts, for the choice of what to improve
};

struct Program {
  std::vector<Buffer> buffers;
  std::vector<Stage> stages;
  int64_t workspace_bytes = 0;  // after PlaceWorkspaces
};

// Gives workspaces of stages that do not overlap in time the same place. Those that no stage uses lose their elements.
void PlaceWorkspaces(Program& program);

// One line a stage, equal for programs that compute the same in the same way: buffers and variables are numbered in
// the order of their use, names are left out. Two problems with equal normal forms have one kernel.
std::string NormalForm(const Program& program);
std::string StageForm(const Program& program, const Stage& stage);

// All stages that compute something, in order: those in the bodies of loops, not the loops. Knob::stage counts them.
std::vector<const Stage*> LeafStages(const std::vector<Stage>& stages);
std::vector<const Stage*> LeafStages(const Program& program);

// Whether the stage reads nothing that it writes, and two of its stores never write one place: then its points may run in
// any order, and a writer may read all before it stores. Exempt is what an input-output has at the place of its only store,
// read before it is written. False where that cannot be shown.
bool HasIndependentPoints(const Program& program, const Stage& stage);

// Buffers that the stage reads and writes, each once, in the order of use.
std::vector<int> BuffersRead(const Stage& stage);
std::vector<int> BuffersWritten(const Stage& stage);

}  // namespace kevin::search
