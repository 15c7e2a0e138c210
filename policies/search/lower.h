#pragma once
// From the graph of a reference to a program. Views and elementwise operations become expressions that are inlined
// where they are read; sums, products, scans and the like become stages; values that several stages read are stored.
//
// START HERE for a new operation: lower_*.cc, one group of operations a file.

#include "policies/policy.h"
#include "policies/search/graph.h"
#include "policies/search/program.h"

namespace kevin::search {

// `arguments` are those of `launch`, with the offsets of parameters in a block in `symbols`. Throws Unsupported with
// the operation that has no stage. Deterministic.
Program Lower(const Graph& graph, const Task& task);

// Joins stages where that saves passes over memory: pointwise work into the stage that makes its operand, reductions
// over the same rows into one. Removes stages and buffers that nothing reads.
void Fuse(Program& program);

// Keeps all intermediates of 16 bits in fp32 where a value goes through more than `most_roundings` of them one after
// another (widen.cc). True: it did.
bool WidenChains(Program& program, int most_roundings);
// Whether results go through intermediates of 16 bits: of such texts one in four was incorrect on an H200, of those with four and
// more one after another two in three. Not where a stage of attention with a softmax keeps what matters in fp32 itself.
bool HasNarrowChain(const Program& program);

// For CUDA in 16 bits: the queries and keys of attention that are products of arguments get more digits (widen.cc).
// `query` and `key` of an Attention are then sums of two loads at equal offsets, the larger one of the lower number.
void KeepScoreOperands(Program& program);

}  // namespace kevin::search
