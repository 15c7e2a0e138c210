#pragma once
// Memory: the records of a database as experience for other problems. It fills Task::related with the correct kernels of
// the problems whose programs (policies/search/program.h) resemble that of the task, the nearest first: what the search
// policy begins with, and what language models are told (prompts/README.md).
//
//   const std::unique_ptr<Memory> memory = OpenMemory("old.db");
//   options.memory = memory.get();     RunEpisode asks it before the first turn
//
// Nearness of two problems: the likeness of their programs (policies/search/resemble.h, from the stages with their
// operations and sizes, weighted by work); times 0.5 on another device model, times 0.8 in another precision. Only
// `measured` verdicts count that stand, are of the current version of the rules, and of the task's kind, rules
// (Workload::rules) and TF32 rule: under "open" a library's call may be the kernel, under "kevin" it may not. The
// problem itself may be among them, at this and at other sizes.
//
// The database is read once, at the beginning: what is written later plays no part, so that equal databases, tasks and
// seeds give equal episodes. References of records are lowered like those of listed problems: their graphs come from
// the evaluator's process. A record whose graph cannot be had is left out.

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "agent/task.h"
#include "env/problem/problem.h"
#include "env/workload.h"
#include "policies/policy.h"
#include "policies/search/resemble.h"
#include "policies/search/task_program.h"
#include "trajectories/best_kernels.h"
#include "trajectories/store.h"

namespace kevin {

inline constexpr size_t kMostRelated = 5;       // problems
inline constexpr double kLeastNearness = 0.4;   // those below are no help
inline constexpr size_t kTextsPerProblem = 12;  // that are read of each

class Memory {
 public:
  // Problems of which `leave_out` is true play no part. Throws as the store does.
  explicit Memory(Store store, const std::function<bool(const ProblemRecord&)>& leave_out = {});

  // `task` is that of the first turn, with its graphs: without them, or where they have no program, there is nothing
  // related. `device` as in EnvironmentFacts. The first call lowers the problems of the records. Thread-safe: calls
  // take turns.
  std::vector<TaskRelated> Related(const Task& task, const Workload& workload, const std::string& device,
                                   const GraphFunction& graph_of);

  std::string database() const { return store_.path().string(); }  // an address without its password
  // Problems of the records, at the sizes, precisions, kinds and devices that they were measured at.
  size_t size() const { return questions_.size(); }
  size_t left_out() const { return left_out_; }  // problems

 private:
  // The kernels of one problem under one question, and its program once it is known.
  struct Question {
    std::vector<BestKernel> kernels;  // fastest first
    bool was_tried = false;
    std::optional<search::TaskProgram> program;  // none: it cannot be lowered
    std::string name;
    search::ProgramTraits traits;
  };

  void Lower(Question& question, const GraphFunction& graph_of);
  TaskRelated ResultsOf(const Question& question, double nearness);

  std::mutex mutex_;
  Store store_;
  std::vector<Question> questions_;
  size_t left_out_ = 0;
};

// The memory of option --memory: a file, or an address of PostgreSQL. It is opened for reading only. Throws Error for a
// database that is missing, corrupt, of a newer format or not one of Kevin's, and says so of the option.
std::unique_ptr<Memory> OpenMemory(const std::filesystem::path& path,
                                   const std::function<bool(const ProblemRecord&)>& leave_out = {});

}  // namespace kevin
