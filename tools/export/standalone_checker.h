#pragma once
// What checks a kernel in a stand-alone file, as source text: inputs, reference and the rule of right and
// wrong.

#include <cstdint>
#include <string>
#include <vector>

#include "env/problem/problem.h"
#include "tools/export/plain_reference.h"

namespace kevin {

// The parts that differ from problem to problem. `gpu`: CUDA, else C++. Both references must outlive it.
class StandaloneChecker {
 public:
  StandaloneChecker(const SizedProblem& problem, const PlainReference& reference, bool gpu)
      : problem_(problem), reference_(reference), gpu_(gpu) {}

  std::string Constants() const;
  // One struct a step, and the function that fills their buffers.
  std::string Steps(const std::string& prefix, const std::vector<ReferenceStep>& steps) const;
  std::string Check() const;
  std::string Buffers(const std::vector<int64_t>& workspaces) const;

 private:
  std::string Fill(size_t i) const;
  std::string ScaleText() const;
  std::string CheckRows() const;
  std::string CheckIndices() const;
  std::string Wrapped(const std::string& answer, const std::string& body, int64_t rows) const;

  const SizedProblem& problem_;
  const PlainReference& reference_;
  bool gpu_;
};

}  // namespace kevin
