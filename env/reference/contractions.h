#pragma once
// Convolutions and products of matrices inside a reference, with inputs rounded to fewer bits: what a kernel
// computes that uses a faster unit in some of the layers. For env/reference alone.

#include <ATen/record_function.h>

#include <cstddef>
#include <functional>
#include <memory>

namespace kevin {

// While this exists, contractions that this thread calls take inputs in fp64 rounded to nearest even at
// `dropped` bits less than the mantissa of float32; outside them no value changes. `is_coarse` says by its
// number, in the order of calls, which ones; empty: none, to count. One object a thread at a time.
class CoarseContractionScope {
 public:
  CoarseContractionScope(int dropped, std::function<bool(size_t number)> is_coarse);
  ~CoarseContractionScope();
  CoarseContractionScope(const CoarseContractionScope&) = delete;
  CoarseContractionScope& operator=(const CoarseContractionScope&) = delete;
  size_t count() const { return count_; }  // of contractions so far

 private:
  struct Call;
  static std::unique_ptr<at::ObserverContext> Begin(const at::RecordFunction& call);
  static void End(const at::RecordFunction& call, at::ObserverContext* context);

  const int dropped_;
  const std::function<bool(size_t)> is_coarse_;
  size_t count_ = 0;
  int depth_ = 0;  // a contraction may call others
  at::CallbackHandle handle_;
};

}  // namespace kevin
