#include "tools/honest_families.h"

// Losses: a number for each row, then their mean. A plain sum over everything in one float is not among them:
// it is honest, but too far off to be told from a wrong one.

namespace kevin {
namespace {

// $ROW gives `loss` of row b; rows are added up in ranges of $RUN, then those.
constexpr const char* kText = R"($PRAGMA#include <cmath>
#include <vector>

$LAUNCH {
  constexpr long rows = $ROWS, columns = $COLUMNS, run = $RUN;
  std::vector<float> losses(rows);
#pragma omp parallel for
  for (long b = 0; b < rows; ++b) {
    float loss = 0;
$ROW
    losses[b] = loss;
  }
  float total = 0;
  for (long begin = 0; begin < rows; begin += run) {
    float part = 0;
    for (long b = begin; b < begin + run && b < rows; ++b) part += losses[b];
    total += part;
  }
  *$OUT = total / static_cast<float>($COUNT);
}
)";

// Added up in ranges of 64.
constexpr const char* kTerms = R"(
    for (long begin = 0; begin < columns; begin += 64) {
      float part = 0;
      for (long n = begin; n < begin + 64 && n < columns; ++n) {
        const long i = b * columns + n;
        part += $TERM;
      }
      loss += part;
    }
)";

constexpr const char* kTermsInLanes = R"(
    float lanes[32] = {};
    for (long n = 0; n < columns; ++n) {
      const long i = b * columns + n;
      lanes[n % 32] += $TERM;
    }
    for (long step = 16; step > 0; step /= 2) {
      for (long l = 0; l < step; ++l) lanes[l] += lanes[l + step];
    }
    loss = lanes[0];
)";

constexpr const char* kCrossEntropy = R"(
    const float* row = predictions + b * columns;
    float top = row[0], sum = 0;
    for (long n = 0; n < columns; ++n) top = row[n] > top ? row[n] : top;
    for (long n = 0; n < columns; ++n) sum += std::exp(row[n] - top);
    loss = top + std::log(sum) - row[targets[b]];
)";

constexpr const char* kCrossEntropyOnline = R"(
    const float* row = predictions + b * columns;
    float top = row[0], sum = 0;
    for (long n = 0; n < columns; ++n) {
      if (row[n] > top) {
        sum *= std::exp(top - row[n]);
        top = row[n];
      }
      sum += std::exp(row[n] - top);
    }
    loss = top - row[targets[b]] + std::log(sum);
)";

// Distances as torch has them: 1e-6 is added to each difference.
constexpr const char* kTriplet = R"(
    float near = 0, far = 0;
    for (long n = $FIRST; n != $LAST; n $NEXT) {
      const long i = b * columns + n;
      const float p = anchor[i] - positive[i] + 1e-6F, q = anchor[i] - negative[i] + 1e-6F;
      near += p * p;
      far += q * q;
    }
    loss = std::fmax(std::sqrt(near) - std::sqrt(far) + 1, 0.0F);
)";

struct Form {
  const char* name;
  std::string row;
  const char* rows;
  const char* columns;
  const char* count;  // that the total is divided by
};

std::vector<HonestKernel> Kernels(const Problem& problem, const std::vector<Form>& forms) {
  std::vector<HonestKernel> kernels;
  for (const Form& form : forms) {
    kernels.push_back({form.name, HonestSource(problem, kText,
                                               {{"PRAGMA", ""},
                                                {"ROWS", form.rows},
                                                {"COLUMNS", form.columns},
                                                {"RUN", "32"},
                                                {"ROW", form.row},
                                                {"OUT", problem.outputs[0].name},
                                                {"COUNT", form.count}})});
  }
  return kernels;
}

std::string With(std::string text, const std::string& placeholder, const std::string& value) {
  const size_t at = text.find(placeholder);
  return text.replace(at, placeholder.size(), value);
}

std::vector<Form> Termwise(const char* term, const char* other_term, const char* rows, const char* columns,
                           const char* count) {
  return {{"sums of 64", With(kTerms, "$TERM", term), rows, columns, count},
          {"32 lanes, then a tree", With(kTermsInLanes, "$TERM", term), rows, columns, count},
          {"another form of the term", With(kTerms, "$TERM", other_term), rows, columns, count}};
}

std::string Triplet(const char* first, const char* last, const char* next) {
  return With(With(With(kTriplet, "$FIRST", first), "$LAST", last), "$NEXT", next);
}

std::vector<Form> FormsOf(const std::string& id) {
  if (id == "level1/94") {
    return Termwise("(predictions[i] - targets[i]) * (predictions[i] - targets[i])",
                    "std::pow(std::abs(targets[i] - predictions[i]), 2.0F)", "B", "N", "B * N");
  }
  if (id == "level1/95")
    return {{"two passes", kCrossEntropy, "B", "C", "B"}, {"online", kCrossEntropyOnline, "B", "C", "B"}};
  if (id == "level1/96") {
    return Termwise(
        "std::abs(predictions[i] - targets[i]) < 1 ? 0.5F * (predictions[i] - targets[i]) * (predictions[i] "
        "- "
        "targets[i]) : std::abs(predictions[i] - targets[i]) - 0.5F",
        "std::fmin(std::abs(predictions[i] - targets[i]), 1.0F) * (std::abs(predictions[i] - targets[i]) - "
        "0.5F * "
        "std::fmin(std::abs(predictions[i] - targets[i]), 1.0F))",
        "B", "N", "B * N");
  }
  if (id == "level1/98") {
    return Termwise("targets[i] > 0 ? targets[i] * (std::log(targets[i]) - std::log(predictions[i])) : 0.0F",
                    "targets[i] > 0 ? targets[i] * std::log(targets[i] / predictions[i]) : 0.0F", "B", "N",
                    "B");
  }
  if (id == "level1/99")
    return {{"serial sums", Triplet("0", "columns", "+= 1"), "B", "N", "B"},
            {"backwards", Triplet("columns - 1", "-1", "-= 1"), "B", "N", "B"}};
  if (id == "level1/100") {
    return Termwise("std::fmax(1 - predictions[i] * targets[n], 0.0F)",
                    "predictions[i] * targets[n] < 1 ? 1 - predictions[i] * targets[n] : 0.0F", "N", "N",
                    "N * N");
  }
  return {};
}

}  // namespace

std::vector<HonestKernel> HonestLosses(const Problem& problem) {
  return Kernels(problem, FormsOf(problem.id));
}

}  // namespace kevin
