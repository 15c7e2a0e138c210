#pragma once
// Internal to write_cuda_reduction.cc and cuda_reduction_*.cc: the text of a reduction under construction.
//
// START HERE for the order of the parts: CudaReductionWriter::Write.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "policies/search/cuda_reduction.h"

namespace kevin::search {

// The C++ of an accumulator.
struct CudaFold {
  std::string type, start, combine;  // `combine`: a lambda over two of `type`
  std::string update;                // of a and b
  bool is_place = false;

  // `is_wide`: places do not fit 32 bits.
  CudaFold(const Accumulator& a, bool is_wide);
  std::string Add(const std::string& name, const std::string& value, const std::string& place) const;
};

class CudaReductionWriter {
 public:
  CudaReductionWriter(CudaText& text, const Stage& stage, const Reduction& whole);
  void Write();

 private:
  using Keep = CudaReductionPlan::Keep;

  CudaFold FoldOf(const Accumulator& accumulator) const;
  // The type of the elements of a fold's workspace.
  std::string PartialType(const CudaFold& fold) const;
  // The types that count outer points and packs.
  const char* RowType() const { return CudaCountType(planned_.outer); }
  const char* PackType() const { return CudaCountType(planned_.packs); }

  // A kernel for each step that leaves partial results, and one that joins the last and stores.
  void WriteSplit();
  void BeginKernel(int64_t group, int64_t threads);
  // Loads of the outer point, of each pass, and those that stay from pass to pass.
  void FindLoads();
  // On an inner loop, a result, or a load that is itself done later.
  bool DependsOnPass(const CudaLoad& load) const;
  // Texts of the constants: knobs where the plan allows.
  bool HasKnobs() const { return !is_end_ && plan_.cluster == 1; }
  // Whether the number of parts is a knob, in the end kernel too.
  bool HasPartsKnob() const;
  std::string GroupText() const;
  std::string Threads() const;
  std::string Grid() const;
  // In a kernel. `launch` has the knob or the number itself: equal kernels of other sizes have other arguments there.
  std::string Parts() const;
  // Packs of an outer point that one block folds.
  int64_t PerBlock() const { return (planned_.packs + plan_.cluster - 1) / plan_.cluster; }
  // Slots of the cluster's results come first.
  int64_t SlotBytes() const;
  std::string SharedBytes() const;
  int64_t SharedKept() const;
  int64_t PackBytes(size_t load) const;
  std::string Prologue();
  std::string Bounds(bool backwards);
  void BindAll(CudaPrinter& printer, const CudaLoads& own) const;
  void BindResults(CudaPrinter& printer, const std::string& t) const;
  std::string StepPass(int step);
  // Whether inner loops are loops of the text: then the unrolled one is the last, or with `across` the one before it.
  bool IsNested() const { return plan_.nested || plan_.across; }
  size_t Unrolled() const { return work_.inner.size() - (plan_.across ? 2 : 1); }
  // Names the inner loops for pack i.
  std::string DecodeInner(CudaPrinter& printer) const;
  std::string Nested(const std::string& body) const;
  std::string EachHead() const;
  // One pass over the inner loops: that of a step, or (pass == steps) the one that stores.
  std::string Pass(int pass);
  std::string SharedAt(size_t load) const;
  std::string Updates(CudaPrinter& printer, int step);
  // At most 16 terms that follow each other are summed first, and each such sum is one term of the thread's. 16,000 squares
  // that are added one by one to a sum that grows exceed the error allowed (level1/94, 1,056 blocks of 64 threads: 1.2
  // times), and so do 128 shares of a softmax (level2/91). These sums of a step; none where there is one run.
  struct RunSum {
    int result;
    std::string name;
  };
  std::vector<RunSum> RunSums(int step) const;
  int64_t PacksOfRun() const;
  std::string BeginRuns(int step) const;
  // Behind each pack of the unrolled loop.
  std::string EndRun(int step) const;
  std::string JoinThreads(int step) const;
  // Partial results lie by part, outer point, neighbour.
  std::string PartialAt(size_t accumulator, const std::string& part) const;
  std::string ToPartials(int step) const;
  std::string FromPartials(int step) const;
  std::string OuterStores();

  CudaText& text_;
  const Stage& stage_;
  CudaPlannedReduction planned_;
  const Reduction& work_;
  CudaReductionPlan& plan_;
  int steps_ = 0;
  int64_t count_ = 1, group_ = 1, threads_ = 1;
  int64_t most_each_ = 1;  // with whole_: packs of a thread, at most
  bool is_exact_ = false;  // all packs of all threads are there
  bool whole_ = false, has_kept_ = false, blocks_have_parts_ = true, is_end_ = false, has_group_knob_ = false;
  std::optional<CudaKernel> kernel_;
  std::optional<CudaPrinter> printer_;
  std::vector<CudaLoads> kept_;  // at most one
  std::vector<CudaLoads> loads_;
  std::optional<CudaLoads> row_loads_;
  std::vector<std::vector<CudaLoad>> pass_loads_;
  std::vector<std::string> partials_, partial_names_;
};

}  // namespace kevin::search
