// Reductions whose rows lie along vectors.

#include <fmt/format.h>

#include <algorithm>

#include "policies/search/cpp_reduction.h"
#include "policies/search/forwarding.h"

namespace kevin::search {
namespace {

// The registers of the accumulators of one step.
class CppRowFold {
 public:
  // `cascades`: the sums of blocks are added to sums of their own, so that rounding errors do not pile up.
  CppRowFold(const Reduction& work, int step, const std::string& unroll, bool cascades, CppPrinter& print)
      : work_(work), unroll_(unroll), cascades_(cascades), print_(print) {
    for (const Accumulator& one : work.accumulators) {
      if (one.step == step) ones_.push_back({&one, CppFoldOf(one), print.Fresh("acc")});
    }
  }

  void Start() {
    for (const One& one : ones_) {
      print_.Line(fmt::format("Vec {}[{}];", one.name, unroll_));
      if (one.fold.is_argument) print_.Line(fmt::format("IntVec {}_at[{}];", one.name, unroll_));
      print_.Line(
          fmt::format("for (int u = 0; u < {}; ++u) {}[u] = Splat({});", unroll_, one.name, one.fold.start));
      if (one.fold.is_argument)
        print_.Line(fmt::format("for (int u = 0; u < {}; ++u) {}_at[u] = IntVec{{}};", unroll_, one.name));
      if (Cascades(one)) print_.Line(fmt::format("Vec {}_all[{}] = {{}};", one.name, unroll_));
    }
  }

  // After each walk.
  void Carry() {
    for (const One& one : ones_) {
      if (!Cascades(one)) continue;
      print_.Line(fmt::format("for (int u = 0; u < {0}; ++u) {1}_all[u] += {1}[u], {1}[u] = Vec{{}};",
                              unroll_, one.name));
    }
  }

  // Inside the walk.
  void Step(const std::string& u) {
    for (const One& one : ones_) {
      const std::string value =
          fmt::format("part.Keep({}, {})", print_.Lanes(CppFolded(*one.accumulator)), one.fold.start);
      if (one.fold.is_argument) {
        print_.Line(fmt::format("{0}({1}, {2}, {3}[{4}], {3}_at[{4}]);", one.fold.name, value,
                                print_.Lanes(LinearOf(work_.inner)), one.name, u));
      } else {
        const std::string register_name = fmt::format("{}[{}]", one.name, u);
        print_.Line(fmt::format("{} = {};", register_name, one.fold.Combine(register_name, value)));
      }
    }
  }

  // Gives `take(accumulator, value as float, or the position)` for each after the walks.
  template <class Take>
  void End(const Take& take) {
    for (const One& one : ones_) {
      const std::string total = print_.Fresh("total");
      if (one.fold.is_argument) {
        print_.Line(fmt::format("float {0}_value;", total));
        print_.Line(fmt::format("const long {0} = Extreme<{1}>({2}, {2}_at, {3}, {0}_value);", total, unroll_,
                                one.name, one.accumulator->op == "argmax" ? "true" : "false"));
      } else {
        print_.Line(fmt::format("const float {} = Across<{}>({}{}, [](Vec a, Vec b) {{ return {}; }});",
                                total, unroll_, one.name, Cascades(one) ? "_all" : "",
                                one.fold.Combine("a", "b")));
      }
      take(*one.accumulator, one.fold, total);
    }
  }

 private:
  struct One {
    const Accumulator* accumulator;
    CppFold fold;
    std::string name;
  };
  bool Cascades(const One& one) const { return cascades_ && one.accumulator->op == "sum"; }

  const Reduction& work_;
  std::string unroll_;
  bool cascades_;
  CppPrinter& print_;
  std::vector<One> ones_;
};

std::vector<Loop> CppWithout(std::vector<Loop> loops, size_t index) {
  loops.erase(loops.begin() + static_cast<long>(index));
  return loops;
}

std::string CppUnroll(const Reduction& work, const CppStage& stage) {
  const std::string unroll = stage.Constant("UNROLL", 4);
  if (work.accumulators.size() <= 3) return unroll;
  return fmt::format("({0} > 2 ? {0} / 2 : {0})", unroll);  // there are 32 registers
}

// Of sums along lanes. Short rows do not fill several vectors.
std::string CppFoldUnroll(const Reduction& work, int64_t extent, const CppStage& stage) {
  const int64_t least = stage.sharing == CppSharing::kAll ? 16 : 128;
  return extent < least ? "1" : CppUnroll(work, stage);
}

constexpr int64_t kCppBlock = 16384;  // terms whose sums are added up by themselves

// The walk of one step over the lanes from `begin` to `end`, in blocks where that is many terms.
void CppWalkStep(CppPrinter& print, const Reduction& work, size_t lanes, const std::string& unroll,
                 const std::string& begin, const std::string& end, CppRowFold& fold) {
  const bool in_blocks = work.inner[lanes].extent > 2 * kCppBlock;
  std::string from = begin, to = end;
  if (in_blocks) {
    from = print.Fresh("block");
    to = print.Fresh("end");
    print.Open(fmt::format("for (long {0} = {1}; {0} < {2}; {0} += {3})", from, begin, end, kCppBlock));
    print.Line(fmt::format("const long {0} = {1} + {2} < {3} ? {1} + {2} : {3};", to, from, kCppBlock, end));
  }
  CppOpenWalk(print, work.inner[lanes].variable, unroll, from, to, "u");
  fold.Step("u");
  print.Close("});");
  fold.Carry();
  if (in_blocks) print.Close();
}

bool CppCascades(const Reduction& work, size_t lanes) {
  return work.inner[lanes].extent >= 512 && CppCount(work.inner) >= kCppBlock;
}

void CppInnerStores(CppPrinter& print, const Reduction& work, const CppStage& stage, size_t lanes,
                    const std::vector<Loop>& serial, const std::string& begin, const std::string& end) {
  if (work.inner_stores.empty()) return;
  const int scopes = print.OpenLoops(serial);
  CppOpenWalk(print, work.inner[lanes].variable, CppUnroll(work, stage), begin, end);
  std::vector<Loop> others = work.outer;
  others.insert(others.end(), serial.begin(), serial.end());
  bool fence = false;
  for (const Store& store : work.inner_stores) {
    const bool streams = CppStreams(stage, store, work.inner[lanes].variable, others);
    print.Store(store, streams);
    fence |= streams;
  }
  print.Close("});");
  if (fence) CppFence(print, stage);
  print.CloseAll(scopes);
}

}  // namespace

void CppRows(const Reduction& work, size_t lanes, CppStage& stage) {
  CppPrinter print(stage);
  const std::vector<Loop> serial = CppWithout(work.inner, lanes);
  const int64_t extent = work.inner[lanes].extent;
  const std::string unroll = CppFoldUnroll(work, extent, stage);
  const int scopes = CppOpenParallel(print, stage, work.outer);
  for (int step = 0; step < CppSteps(work); ++step) {
    CppRowFold fold(work, step, unroll, CppCascades(work, lanes), print);
    fold.Start();
    const int inner = print.OpenLoops(serial);
    CppWalkStep(print, work, lanes, unroll, "0", stage.Number(extent), fold);
    print.CloseAll(inner);
    fold.End([&](const Accumulator& one, const CppFold& how, const std::string& total) {
      print.BindResult(one.result, CppResultText(how, total, false), false);
    });
  }
  for (const Store& store : work.outer_stores) print.Store(store);
  CppInnerStores(print, work, stage, lanes, serial, "0", stage.Number(extent));
  print.CloseAll(scopes);
  stage.body = print.Text();
}

void CppSplitRows(const Reduction& work, size_t lanes, CppStage& stage) {
  CppPrinter print(stage);
  // The longest inner loop is shared.
  size_t shared = lanes;
  for (size_t i = 0; i < work.inner.size(); ++i) {
    if (work.inner[i].extent >= 4 * stage.task.threads && i < shared) shared = i;
  }
  const int64_t rows = CppCount(work.outer), extent = work.inner[shared].extent;
  const int64_t parts = std::clamp<int64_t>(CppCount(work.inner) / (1 << 14), stage.task.threads,
                                            std::max<int64_t>(stage.task.threads, 32 / rows));
  const int64_t share =
      shared == lanes ? ((extent + parts - 1) / parts + 63) / 64 * 64 : (extent + parts - 1) / parts;
  std::vector<Loop> serial = CppWithout(work.inner, lanes);
  const int64_t lanes_extent = work.inner[lanes].extent;
  const std::string unroll = CppFoldUnroll(work, lanes_extent, stage);
  const int row = kCppFirstVariable * 2 + 1, part = kCppFirstVariable * 2 + 2;

  // Opens the loops over (row, share) and binds the outer variables; then the inner loops within the share.
  std::string begin, end;
  const auto open_jobs = [&](bool parallel, bool shares) {
    std::vector<Loop> jobs = {{row, rows}};
    if (shares) jobs.push_back({part, parts});
    int scopes = 0;
    if (parallel) {
      scopes = CppOpenParallel(print, stage, jobs);
    } else {
      CppOpenJobs(print, "1", print.Fresh("job"), "1");
      scopes = 2 + print.OpenLoops(jobs);
    }
    print.Open("");
    const ExprPtr row_index = Variable(row, rows);
    std::vector<int64_t> shape;
    for (const Loop& loop : work.outer) shape.push_back(loop.extent);
    const std::vector<ExprPtr> index = IndexOf(row_index, shape);
    for (size_t i = 0; i < work.outer.size(); ++i) print.Bind(work.outer[i].variable, print.Scalar(index[i]));
    if (shares) {
      begin = print.Fresh("begin");
      end = print.Fresh("end");
      const std::string number = print.Scalar(Variable(part, parts));
      print.Line(fmt::format("const long {0} = {1} * {2} < {3} ? {1} * {2} : {3};", begin, number,
                             stage.Number(share), stage.Number(extent)));
      print.Line(fmt::format("const long {0} = {1} + {2} < {3} ? {1} + {2} : {3};", end, begin,
                             stage.Number(share), stage.Number(extent)));
    }
    return scopes + 1;
  };
  const auto open_serial = [&] {
    int scopes = 0;
    for (const Loop& loop : serial) {
      if (loop.variable != work.inner[shared].variable) {
        scopes += print.OpenLoops({loop});
        continue;
      }
      const std::string v = print.Fresh("v");
      print.Open(fmt::format("for (long {0} = {1}; {0} < {2}; ++{0})", v, begin, end));
      print.Bind(loop.variable, v);
      ++scopes;
    }
    return scopes;
  };
  const auto walk_begin = [&] { return shared == lanes ? begin : std::string("0"); };
  const auto walk_end = [&] { return shared == lanes ? end : stage.Number(lanes_extent); };
  std::vector<std::pair<int, std::string>> results;  // of earlier steps, by row
  const auto bind_results = [&] {
    for (const auto& [result, name] : results)
      print.BindResult(result, fmt::format(fmt::runtime(name), print.Scalar(Variable(row, rows))), false);
  };

  for (int step = 0; step < CppSteps(work); ++step) {
    std::vector<std::string> arrays;
    std::vector<const Accumulator*> ones;
    for (const Accumulator& one : work.accumulators) {
      if (one.step != step) continue;
      ones.push_back(&one);
      arrays.push_back(print.Fresh("parts"));
      print.Line(fmt::format("static float {}[{}];", arrays.back(), rows * parts));
      if (CppFoldOf(one).is_argument)
        print.Line(fmt::format("static long {}_at[{}];", arrays.back(), rows * parts));
    }
    int scopes = open_jobs(true, true);
    bind_results();
    CppRowFold fold(work, step, unroll, CppCascades(work, lanes), print);
    fold.Start();
    const int inner = open_serial();
    CppWalkStep(print, work, lanes, unroll, walk_begin(), walk_end(), fold);
    print.CloseAll(inner);
    const std::string job = print.Scalar(AddInt(Scaled(Variable(row, rows), parts), Variable(part, parts)));
    size_t at = 0;
    fold.End([&](const Accumulator&, const CppFold& how, const std::string& total) {
      const std::string& array = arrays[at++];
      print.Line(fmt::format("{}[{}] = {}{};", array, job, total, how.is_argument ? "_value" : ""));
      if (how.is_argument) print.Line(fmt::format("{}_at[{}] = {};", array, job, total));
    });
    print.CloseAll(scopes);
    CppOpenJobs(print, "1", print.Fresh("job"), "1");
    const int joins = 2 + print.OpenLoops({{row, rows}});
    const std::string row_text = print.Scalar(Variable(row, rows));
    for (size_t i = 0; i < ones.size(); ++i) {
      const CppFold how = CppFoldOf(*ones[i]);
      const std::string first = fmt::format("{}[{} * {}]", arrays[i], row_text, parts);
      print.Open(fmt::format("for (int p = 1; p < {}; ++p)", parts));
      const std::string next = fmt::format("{}[{} * {} + p]", arrays[i], row_text, parts);
      if (how.is_argument) {
        const std::string at_first = fmt::format("{}_at[{} * {}]", arrays[i], row_text, parts),
                          at_next = fmt::format("{}_at[{} * {} + p]", arrays[i], row_text, parts);
        print.Line(fmt::format("TakeFirst({}, {}, {}, {}, {});", next, at_next, first, at_first,
                               ones[i]->op == "argmax" ? "true" : "false"));
      } else {
        print.Line(fmt::format("{} = {};", first, how.Combine(first, next)));
      }
      print.Close();
      const std::string name =
          how.is_argument ? fmt::format("{}_at[{{}} * {}]", arrays[i], parts)
                          : CppResultText(how, fmt::format("{}[{{}} * {}]", arrays[i], parts), false);
      results.emplace_back(ones[i]->result, name);
    }
    print.CloseAll(joins);
  }
  if (!work.outer_stores.empty()) {
    const int scopes = open_jobs(false, false);
    bind_results();
    for (const Store& store : work.outer_stores) print.Store(store);
    print.CloseAll(scopes);
  }
  if (!work.inner_stores.empty()) {
    const int scopes = open_jobs(true, true);
    bind_results();
    const int inner = open_serial();
    CppInnerStores(print, work, stage, lanes, {}, walk_begin(), walk_end());
    print.CloseAll(inner);
    print.CloseAll(scopes);
  }
  stage.body = print.Text();
}

}  // namespace kevin::search
