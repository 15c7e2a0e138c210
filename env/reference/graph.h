#pragma once
// The graph of a reference at one size: operations with shapes, as torch executes them. The TorchScript text is
// compiled as for Reference and run on tensors without data (torch's device "meta"), so that a graph costs
// milliseconds whatever the size. Control flow, helper functions, lists, dictionaries and shapes are resolved:
// what is left are the operators of ATen at the level of the text (conv2d, linear, lstm, ... not decomposed).
//
// The JSON, compact and deterministic:
//
//   {"version":1,
//    "inputs":[{"name":"x","value":0}],                 in the order of the problem file, parameters too
//    "values":[{"dtype":"float32","shape":[2,3]}],      by number; dtypes "float32", "float16", "bfloat16",
//                                                       "float64", "int64", "int32", "int16", "int8", "uint8",
//                                                       "bool", "complex64", "complex128"
//    "nodes":[{"op":"relu","args":{"self":{"tensor":0}},"results":[1]}],
//    "outputs":[1]}                                     in the order of the problem: input-outputs last, by their value
//                                                       after the call
//
// Nodes stand in an order of execution; every value has one producer. `args` has the names of torch's schema, in
// its order. An argument is {"tensor":n}, a list of tensors {"tensors":[n, null]}, an integer, a float (written
// with a point or an exponent; {"float":"inf"}, "-inf", "nan"), a bool, a text, null, or a list of these. A dtype
// is its name ("dtype":"float32"). Arguments that say only where memory comes from (device, layout, pin_memory,
// memory_format, generator) are left out. Operators that return their input unchanged (contiguous, dropout in
// evaluation, to the same type), views that change nothing, repetitions and what is not used leave no node. Operators in place stand as their pure form (`relu_` is relu); a
// write through a view changes what the view was taken of: by select_scatter, slice_scatter, diagonal_scatter or
// the inverse view. Where the dtype of the result differs from what the operator would give, the result is
// converted to it. A tensor made of a number is "scalar_tensor".
//
// Loops are unrolled, but for those of more than kLongestUnrolledLoop iterations with equal bodies:
//
//   {"op":"loop","args":{"trip":T},
//    "carried":[[init,param,next,result],...],   param: the value's number in the body, first `init`, then the
//                                                `next` of the iteration before; result: the last `next`
//    "stacked":[[next,result],...],              result: the `next` of all iterations along a new first dimension
//    "body":[nodes],                             numbered as one iteration; values from outside keep their numbers
//    "results":[...]}                            of carried, then of stacked; null in carried: not used afterwards
//
// An integer in the body that grows by a constant is {"base":b,"step":s}: b + s * i in iteration i, from 0. Lists
// that a loop fills and that are then stacked or concatenated become `stacked` results (and permute, reshape, cat).

#include <cstddef>
#include <cstdint>
#include <string>

#include "env/problem/problem.h"

namespace kevin {

inline constexpr int kGraphFormat = 1;  // "version"; grows when a graph of the same problem would differ
inline constexpr int64_t kLongestUnrolledLoop = 16;
inline constexpr size_t kMaxGraphNodes = 100'000;  // recorded, before loops are folded

// The problem is in its precision (env/problem/precision.h) and `size` one of its sizes. Throws Error(kBadRequest)
// as Reference does, and when the graph depends on values: a tensor that decides a branch or a shape, named by its
// operator; also when the reference fails at these shapes.
std::string ReferenceGraph(const Problem& problem, const std::string& size);

}  // namespace kevin
