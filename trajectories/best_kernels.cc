#include "trajectories/best_kernels.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <tuple>

#include "env/outcome.h"
#include "trajectories/store_impl.h"

namespace kevin {
namespace {

using Question = std::tuple<std::string, std::string, std::string, std::string, bool, std::string,
                            std::string, std::string>;

// A text's measurements; the sums of logarithms become means.
struct MeasuredText {
  BestKernel kernel;
  double log_speedup = 0, log_us = 0;
};

Question QuestionOf(const BestKernel& k) {
  return {k.problem_hash,   k.workload.size, k.workload.inputs, k.workload.precision, k.workload.tf32,
          k.workload.rules, k.kind,          k.device};
}

}  // namespace

std::vector<BestKernel> BestKernels(Store& store, size_t most) {
  const std::lock_guard lock(store.impl().mutex);
  Statement row = store.impl().database.Prepare(
      "SELECT problem_hash, size, inputs, precision, tf32, rules, kind, device, candidate, speedup, candidate_us, "
      "episode, turn FROM evaluations "
      "WHERE outcome = 'measured' AND correct = 1 AND superseded_by IS NULL AND cached_from IS NULL "
      "AND rules_version = ? AND shared_gpu = 0 AND speedup > 0 AND candidate_us > 0 AND candidate IS NOT NULL "
      "AND episode IS NOT NULL AND turn IS NOT NULL ORDER BY id");
  row.Bind(kRulesVersion);
  std::map<Question, std::map<std::string, MeasuredText>> questions;
  while (row.Step()) {
    RowReader column(row);
    BestKernel k;
    k.problem_hash = column.Text(), k.workload.size = column.Text(), k.workload.inputs = column.Text();
    k.workload.precision = column.Text(), k.workload.tf32 = column.Flag();
    k.workload.rules = column.Text();
    k.kind = column.Text(), k.device = column.Text();
    const std::string candidate = column.Text();
    const double speedup = column.Real(), us = column.Real();
    k.episode = column.Text(), k.turn = column.Int();
    MeasuredText& text = questions[QuestionOf(k)].try_emplace(candidate, MeasuredText{k}).first->second;
    text.log_speedup += std::log(speedup);
    text.log_us += std::log(us);
    ++text.kernel.measurements;
  }
  std::vector<BestKernel> kernels;
  for (auto& [question, texts] : questions) {
    std::vector<BestKernel> of_question;
    for (auto& [candidate, text] : texts) {
      text.kernel.speedup = std::exp(text.log_speedup / text.kernel.measurements);
      text.kernel.candidate_us = std::exp(text.log_us / text.kernel.measurements);
      of_question.push_back(std::move(text.kernel));
    }
    std::stable_sort(of_question.begin(), of_question.end(),
                     [](const BestKernel& a, const BestKernel& b) { return a.speedup > b.speedup; });
    if (of_question.size() > most) of_question.resize(most);
    for (BestKernel& kernel : of_question) kernels.push_back(std::move(kernel));
  }
  return kernels;
}

}  // namespace kevin
