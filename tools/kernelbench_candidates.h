#pragma once
// Candidates as others publish them, for `kevin bench --kernelbench PATH`, and the size for which they are. Four forms are read:
//
//   a folder with level_1_problem_19_sample_0_kernel.py ...    a run of KernelBench; in it and in its folders, three deep; where a
//                                                              folder's name has the level also problem_19.py, problem_19_kernel.py
//   a folder with data.json and solutions/NAME.py              the leaderboard's: "Level 1: 19_ReLU" to a list of
//                                                              {"file": NAME, "display_name": ...}
//   rows {"level", "problem_id", "code", "display_name"}       the leaderboard's raw data; its problem_id counts from 0
//   rows {"level_id", "task_id", "custom_code" or "code"}      CUDA-L1's; also {"1": [{"task_id", "custom_code"}, ...]}
//
// Rows come from a file: a JSON array, or one JSON object a line. A row without code is counted and left out. Texts are
// hostile input: nothing of them is run, names are checked before they become paths. Any thread.

#include <filesystem>
#include <string>
#include <vector>

#include "env/problem/problem.h"

namespace kevin {

struct PublishedCandidate {
  std::string name;     // for people and records: the file's name, "line 12", "Level 1: 19_ReLU, gpt-o1"
  std::string problem;  // "level1/19"
  int level = 0, number = 0;
  int sample = 0;  // of this problem: the file's number, else counted from 0
  std::string source;
};

struct PublishedCandidates {
  std::vector<PublishedCandidate> candidates;  // by level, problem and sample
  std::vector<std::string> left_out;           // "NAME: reason"
};

inline constexpr size_t kMaxPublishedBytes = size_t{1} << 30;  // of a file with rows
inline constexpr size_t kMostPublishedFiles = 100000;          // of a run

// Throws Error(kBadRequest) when the path cannot be read or has none of these forms, or a run has more than `most_files`.
PublishedCandidates ReadPublishedCandidates(const std::filesystem::path& path,
                                            size_t most_files = kMostPublishedFiles);

// The size at which candidates for a problem are judged where `asked` was asked for: that one; for kFirstShapes the one that
// has those shapes (env/problem/model_facts.h). Empty: there is none, and `reason` says why.
std::string SizeOfPublished(const Problem& problem, const std::string& asked, std::string* reason);

}  // namespace kevin
