#pragma once
// References and their exact results in double precision, for the tests that run generated kernels.

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/policies/search/kernel_library.h"
#include "tests/support/reply.h"

namespace kevin::test {

using Numbers = std::vector<double>;
using Truth = std::function<Numbers(const std::vector<Numbers>& inputs)>;

struct Case {
  std::string reference;
  std::vector<TensorShape> inputs;
  std::vector<int64_t> output;
  Truth truth;
  double terms = 1;  // added up for one result
  int schedules = 3;
  bool index_output = false;
};

// Every family, at sizes that are odd, one, or not a multiple of the vector length.
std::vector<Case> EveryCase();

// Page-aligned, as the evaluator's buffers are.
template <class T>
std::unique_ptr<T[], decltype(&std::free)> Allocate(int64_t count) {
  const size_t bytes = (static_cast<size_t>(count) * sizeof(T) + 4096) / 4096 * 4096;
  return {static_cast<T*>(std::aligned_alloc(4096, bytes)), &std::free};
}

std::string Forward(const std::string& expression);  // as a reference of one input `x`

// Truths. Columns folds dimension `terms` of outer x terms x inner; `fold` gets one column's values and
// returns its results: one number, or as many as there are terms.
Truth Columns(int64_t outer, int64_t terms, int64_t inner,
              const std::function<Numbers(const Numbers&)>& fold);
Truth Product(int64_t batch, int64_t m, int64_t n, int64_t k, bool left_transposed, bool right_transposed);
Numbers SoftMax(const Numbers& column, bool log);
// With mean 0 (or, `centred` false, as it is) and variance 1.
Numbers Normal(const Numbers& column, bool centred);
Numbers RunningSum(const Numbers& column);

// Runs candidate `index` of the library on random inputs. Fails the test when its error exceeds the bound of
// the evaluator's check, or when it writes past its output.
void Check(const Case& one, const KernelLibrary& library, size_t index);

}  // namespace kevin::test
