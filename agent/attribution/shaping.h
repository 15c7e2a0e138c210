#pragma once
// Shaping terms: rewards for the text of a reply, whatever its verdict. They are off by default (weights of 0 in
// ScoreRule) and are added to the verified score, never in its place: a policy that earns them alone learns to write what
// looks like a kernel. Two projects reward text alone; the first three terms exist to compare with them.
//
//   tags        1 for reasoning in tags and a fenced block after it, 0.5 for the reasoning alone, else 0. Kernel Coder
//               (insop/kernel-coder, commit 5fb43c7).
//   similarity  how much of the kernel stands in the fastest correct kernel of the same problem and kind in another
//               episode of the same records: the ratio of SequenceRatio, from 0 to 1; 0 where there is none. Kernel
//               Coder compares with the answer of its data set.
//   staged      the share of what a Triton kernel has, by features of its text, from 0 to 1. KernelTune (cdreetz/
//               KernelTune, commit 597a97e), whose finding was that a policy reaches the full reward without a
//               correct kernel. 0 for other kinds.
//   overlong    the soft overlong punishment of DAPO (arXiv 2503.14476, equation 13), from -1 to 0. With L tokens of the
//               reply, at most M allowed, and C = M times ScoreRule::overlong_cache (DAPO: 4096 of 20480):
//                 0                 L <= M - C
//                 (M - C - L) / C   M - C < L <= M
//                 -1                L > M, and where the reply was cut off
//               0 where L or M is not recorded.
//
// Pure except for ToAttributed; any thread.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/attribution/attribution.h"

namespace kevin {

class Store;

// `reasoning`: as a server sent it beside the reply; may be empty.
double TagsReward(std::string_view reply, std::string_view reasoning);

// 2 M / (|a| + |b|), where M counts the bytes of matching blocks: the longest common block (the earliest in `a`, then in
// `b`), then the same on both sides of it (Ratcliff and Obershelp; the ratio of Python's difflib.SequenceMatcher with
// autojunk=False). 1 for two empty texts. Texts are compared up to kMostComparedBytes; time grows with their product.
inline constexpr size_t kMostComparedBytes = 16384;
double SequenceRatio(std::string_view a, std::string_view b);

// Of 90 points: 30 it compiles (KernelTune: it parses), 15 both imports, 15 @triton.jit, 3 each for five operations of
// triton.language, 7.5 parameters of the kernel with tl.constexpr, 7.5 a launch over a grid.
double StagedReward(std::string_view source, const std::string& kind, bool compiled);

// L and M; std::nullopt: not recorded. `cache`: C / M, above 0, at most 1.
double OverlongReward(std::optional<int64_t> tokens, std::optional<int64_t> most_tokens, bool cut_off,
                      double cache);

bool HasShaping(const ScoreRule& rule);

// ToAttributed, with the terms that `rule` weighs; reads the texts of all turns from the store then. `figures` are of it.
std::vector<AttributedEpisode> ToAttributed(const Figures& figures, const ScoreRule& rule, Store& store);

}  // namespace kevin
