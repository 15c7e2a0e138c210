// The text of a contraction by its plan (cpp_contraction.h): operands are copied where the plan says so, then tasks make
// blocks of sums and store them.

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "policies/search/cpp_contraction_writer.h"

namespace kevin::search {

std::vector<Loop> CppContractionWriter::LeftBatch() const {
  std::vector<Loop> loops;
  for (const Loop& loop : work_.batch) {
    const bool limits = std::any_of(work_.k_limits.begin(), work_.k_limits.end(), [&](const ExprPtr& limit) {
      return limit && Uses(limit, loop.variable);
    });
    if (limits || Uses(work_.lhs, loop.variable)) loops.push_back(loop);
  }
  return loops;
}

std::vector<Loop> CppContractionWriter::ColumnLoops() const {
  return {work_.n.begin() + static_cast<long>(plan_.first_column), work_.n.end()};
}

std::vector<Loop> CppContractionWriter::OuterLoops() const {
  std::vector<Loop> loops = work_.batch;
  loops.insert(loops.end(), work_.n.begin(), work_.n.begin() + static_cast<long>(plan_.first_column));
  return loops;
}

// A bit for each number of rows that a tile has, where tiles have at most `most`.
unsigned CppContractionWriter::CountsOfRows(int64_t most) const {
  unsigned counts = 0;
  for (const int64_t rows :
       {std::min(plan_.m, plan_.row_block), plan_.m - (RowBlocks() - 1) * plan_.row_block}) {
    const int64_t tiles = (rows + most - 1) / most;
    counts |= 1U << (rows / tiles) | 1U << ((rows + tiles - 1) / tiles);
  }
  // Several stages of at least a tile each have one function.
  const unsigned all = (2U << most) - (1U << (most / 2));
  if (stage_.sharing == CppSharing::kAll && (counts & ~all) == 0) return all;
  return counts;
}

void CppDecode(CppPrinter& print, const CppStage& stage, const std::vector<Loop>& loops,
               const std::string& name) {
  // Functions that several stages share do not depend on which loops have one point.
  const bool shares = stage.sharing == CppSharing::kAll;
  int64_t below = 1;
  for (size_t i = loops.size(); i-- > 0;) {
    const std::string digit = print.Fresh("d");
    const bool is_first = shares ? i + 1 == loops.size() : below == 1;
    std::string text = is_first ? name : fmt::format("{} / {}", name, stage.Number(below));
    if (i > 0) text = fmt::format("{} % {}", text, stage.Number(loops[i].extent));
    print.Line(fmt::format("const long {} = {};", digit, loops[i].extent == 1 && !shares ? "0" : text));
    print.Bind(loops[i].variable, digit);
    below *= loops[i].extent;
  }
}

int CppContractionWriter::OpenK(const std::string& counter) {
  for (size_t i = 0; i < work_.k.size(); ++i) {
    const ExprPtr limit = i < work_.k_limits.size() ? work_.k_limits[i] : nullptr;
    const std::string end = limit ? print_.Scalar(limit) : N(work_.k[i].extent);
    const std::string v = print_.Fresh("k");
    const bool last = i + 1 == work_.k.size();
    print_.Open(fmt::format("for (long {0} = 0; {0} < {1}; ++{0}{2})", v, end, last ? ", ++" + counter : ""));
    print_.Bind(work_.k[i].variable, v);
  }
  if (work_.k.empty()) print_.Open(fmt::format("for (; {0} < 1; ++{0})", counter));
  return std::max<int>(1, static_cast<int>(work_.k.size()));
}

void CppContractionWriter::Buffers() {
  const auto buffer = [&](int which, const std::string& type, const char* name, int64_t bytes,
                          bool by_thread = false) {
    stage_.scratch.push_back({which, bytes, by_thread});
    print_.Line(fmt::format("{0}* const {1} = ({0}*)Scratch<{2}>(0);", type, name, which));
  };
  const int64_t tiles = RowBlocks() * (plan_.row_block + 3) / 4 + RowBlocks();
  if (plan_.field) buffer(8, "float", "field", (plan_.field->elements + 64) * 4);
  if (plan_.left_is_packed)
    buffer(9, "float", "left", CppCount(LeftBatch()) * tiles * 8 * std::max<int64_t>(plan_.k, 1) * 4);
  if (HasTables()) buffer(10, "int", "tables", (plan_.k + 16) * 4, plan_.tables_by_batch);
  if (plan_.splits > 1) {
    buffer(11, "float", "all_sums", CppCount(OuterLoops()) * plan_.splits * Sums() * 4);
  } else {
    buffer(11, "float", "all_sums", Sums() * 4, true);
  }
  if (IsPacked()) buffer(12, "float", "all_packed", (plan_.k_block * Pitch() + 64) * 4, true);
}

// Offsets of k = 0, 1, ... in the right operand. The elements of k are the same for all tasks, or `terms` becomes the number
// of those of this task.
void CppContractionWriter::Tables(const std::string& counter) {
  print_.Line(fmt::format("long {} = 0;", counter));
  const int scopes = OpenK(counter);
  if (RightHasTable())
    print_.Line(fmt::format("at_right[{}] = int({});", counter, print_.Scalar(plan_.right_k)));
  print_.CloseAll(scopes);
  if (!RightHasTable())
    print_.Line(fmt::format("for (long i = 0; i < {}; ++i) at_right[i] = int(i * {});", N(plan_.k_block),
                            N(Pitch())));
}

// A loop over `count` jobs named `job`; `parts`: about how many times a thread takes some.
int CppContractionWriter::OpenJobs(int64_t count, const std::string& job, int64_t parts) {
  CppOpenJobs(print_, N(count), job, N(std::max<int64_t>(1, count / (parts * stage_.task.threads))));
  return 2;
}

// Stores the rows from `from` to `to` of the block, whose sums begin at `sums`.
void CppContractionWriter::StoreRows(const std::string& sums, const std::string& pitch,
                                     const std::string& from, const std::string& to) {
  print_.Open(fmt::format("for (long m = {}; m < {}; ++m)", from, to));
  Decode(work_.m, "m");
  print_.Line(fmt::format("const float* const sum_row = {} + (m - ({})) * {} - begin;", sums, from, pitch));
  ForColumns([&](const std::string& column, const std::string&) {
    const std::string sum = print_.Fresh("sum");
    print_.Line(fmt::format("const Vec {} = part.Load(sum_row + {});", sum, column));
    print_.BindResult(0, sum, true);
    for (const search::Store& store : work_.stores) print_.Store(store);
  });
  print_.Close();
}

// Pointers to the operands of one outer point.
void CppContractionWriter::TaskOperands() {
  if (plan_.left_is_packed) {
    std::string index = "0";
    for (const Loop& loop : LeftBatch())
      index = fmt::format("({} * {} + {})", index, N(loop.extent),
                          print_.Scalar(Variable(loop.variable, std::max<int64_t>(2, loop.extent))));
    print_.Line(fmt::format(
        "const float* const left_block = left + ({} * {} + row_block) * (({} + kTileRows - 1) / kTileRows) * kTileRows * {};",
        index, N(RowBlocks()), N(plan_.row_block), N(plan_.k)));
  } else {
    print_.Line(fmt::format("const float* const left_block = {} + first_row * {};",
                            print_.Address(work_.lhs->id, plan_.left_base), N(plan_.left_row)));
  }
  if (plan_.right == CppRight::kField) {
    print_.Line(fmt::format("const float* const right = field + {};", print_.Scalar(plan_.right_base)));
  } else if (plan_.right != CppRight::kPacked) {
    print_.Line(
        fmt::format("const float* const right = {};", print_.Address(work_.rhs->id, plan_.right_base)));
  }
}

// All rows of the block, for the elements of k from `k_begin` on; then stores, after the last element.
void CppContractionWriter::RowTiles() {
  const bool whole_block = plan_.k_block < plan_.k;
  print_.Line("const long tiles_of_block = (rows + kTileRows - 1) / kTileRows;");
  print_.Open("for (long tile = 0; tile < tiles_of_block; ++tile)");
  print_.Line("const long from = tile * rows / tiles_of_block, to = (tile + 1) * rows / tiles_of_block;");
  print_.Line(fmt::format("float* const sums = block_sums{};",
                          whole_block ? fmt::format(" + from * {}", N(Pitch())) : ""));
  const std::string add = plan_.splits > 1 || !whole_block ? "false" : "k_begin > 0";
  const std::string left = plan_.left_is_packed
                               ? fmt::format("left_block + tile * kTileRows * {}", N(plan_.k))
                               : fmt::format("left_block + from * {}", N(plan_.left_row));
  if (plan_.right == CppRight::kDots) {
    print_.Line(fmt::format(
        "MultiplyDots(to - from, k_count, {} + k_begin, {}, right + begin * {} + k_begin, {}, end - begin, sums, {}, {});",
        left, N(plan_.left_row), N(plan_.right_column), N(plan_.right_column), N(Pitch()), add));
  } else {
    const std::string right = IsPacked() ? "packed" : "right + begin",
                      at_right = IsPacked() ? "at_right" : "at_right + k_begin",
                      step = plan_.left_is_packed ? "kTileRows" : N(plan_.left_step);
    print_.Line(fmt::format(
        "Multiply<kTileRows == 8 ? {} : {}>(to - from, {{k_count, {} + k_begin * {}, {}, {}, {}, {}, end - begin, {}, sums, {}, {}}});",
        CountsOfRows(8), CountsOfRows(6), left, step, plan_.left_is_packed ? "1" : N(plan_.left_row), step,
        right, at_right, IsPacked() ? "0" : "begin", N(Pitch()), add));
  }
  if (plan_.splits == 1) {
    if (whole_block) print_.Open("if (k_begin + k_count >= terms)");
    StoreRows("sums", N(Pitch()), "first_row + from", "first_row + to");
    if (whole_block) print_.Close();
  }
  print_.Close();
}

void CppContractionWriter::Tasks() {
  const std::vector<Loop> outer = OuterLoops();
  const int64_t count = CppCount(outer) * ColumnBlocks() * RowBlocks() * plan_.splits;
  const int columns = kCppFirstVariable * 3, rows = columns + 1, split = columns + 2;
  const int64_t at_once = std::max<int64_t>(1, count / (32 * stage_.task.threads));
  CppOpenJobs(print_, N(count), "task", fmt::format("{} * {}", N(at_once), stage_.Constant("CHUNK", 1)));
  const int jobs = 2;
  std::vector<Loop> loops = outer;
  loops.push_back({columns, ColumnBlocks()});
  loops.push_back({rows, RowBlocks()});
  if (plan_.splits > 1) loops.push_back({split, plan_.splits});
  Decode(loops, "task");
  const auto name = [&](int variable) { return print_.Scalar(Variable(variable, 2)); };
  print_.Line(fmt::format("const long begin = {} * {};", name(columns), N(plan_.column_block)));
  print_.Line(fmt::format("const long end = begin + {0} < {1} ? begin + {0} : {1};", N(plan_.column_block),
                          N(plan_.columns)));
  print_.Line(
      fmt::format("const long row_block = {}, first_row = row_block * {};", name(rows), N(plan_.row_block)));
  print_.Line(fmt::format("const long rows = {0} - first_row < {1} ? {0} - first_row : {1};", N(plan_.m),
                          N(plan_.row_block)));
  if (HasTables() && plan_.tables_by_batch) {
    print_.Line(fmt::format("int* const at_right = tables + worker.me * {};", N(plan_.k + 16)));
    Tables("terms");
  } else if (!HasTables()) {
    print_.Line(fmt::format("const long terms = {};", N(plan_.k)));
  }
  TaskOperands();
  print_.Line(fmt::format("float* const block_sums = all_sums + {} * {};",
                          plan_.splits > 1 ? "task" : "worker.me", N(Sums())));
  if (IsPacked())
    print_.Line(
        fmt::format("float* const packed = all_packed + worker.me * {};", N(plan_.k_block * Pitch() + 64)));
  if (plan_.splits > 1) {
    print_.Open("");
    print_.Line(fmt::format("const long k_begin = {} * {};", name(split), N(plan_.k_block)));
  } else {
    // At least once, so that an empty sum is stored too.
    print_.Open(fmt::format("for (long k_begin = 0; k_begin == 0 || k_begin < terms; k_begin += {})",
                            N(plan_.k_block)));
  }
  print_.Line(
      fmt::format("const long k_count = terms - k_begin < {0} ? terms - k_begin : {0};", N(plan_.k_block)));
  if (IsPacked()) PackRight();
  RowTiles();
  print_.Close();
  print_.CloseAll(jobs);
}

void CppContractionWriter::SumOfSplits() {
  const std::vector<Loop> outer = OuterLoops();
  const int row = kCppFirstVariable * 3 + 3;
  const int64_t sums = Sums();
  std::vector<Loop> loops = outer;
  loops.push_back({row, plan_.m});
  const int jobs = OpenJobs(CppCount(loops), "point", 16);
  Decode(outer, fmt::format("(point / {})", N(plan_.m)));
  print_.Line(
      fmt::format("const long row = point % {0}, begin = 0, end = {1};", N(plan_.m), N(plan_.columns)));
  print_.Line(fmt::format("float* const total = all_sums + point / {} * {} + row * {};", N(plan_.m),
                          N(plan_.splits * sums), N(Pitch())));
  print_.Open(fmt::format("for (long split = 1; split < {}; ++split)", N(plan_.splits)));
  print_.Line(fmt::format("for (long j = 0; j < end; ++j) total[j] += total[split * {} + j];", N(sums)));
  print_.Close();
  StoreRows("total", N(Pitch()), "row", "row + 1");
  print_.CloseAll(jobs);
}

void CppContractionWriter::Write() {
  Buffers();
  if (HasTables() && !plan_.tables_by_batch) {
    print_.Line("int* const at_right = tables;");
    print_.Line(fmt::format("const long terms = {};", N(plan_.k)));
    const int jobs = OpenJobs(1, "job", 1);
    Tables("term");
    print_.CloseAll(jobs);
  }
  if (plan_.field) FillField();
  if (plan_.left_is_packed) PackLeft();
  Tasks();
  if (plan_.splits > 1) SumOfSplits();
  stage_.body = print_.Text();
  stage_.helpers.push_back(CppContractionCore());
  if (plan_.right == CppRight::kTransposed) stage_.helpers.push_back(CppTransposeCore());
  if (plan_.right == CppRight::kDots) stage_.helpers.push_back(CppDotsCore());
  if (plan_.field) stage_.helpers.push_back(CppFieldCore());
}

bool CppContraction(const Contraction& work, CppStage& stage) {
  const std::optional<CppContractionPlan> plan = CppPlanContraction(work, stage);
  const int64_t winograd = stage.Value("WINOGRAD", 0);
  const double most_cycles = winograd == 2 ? std::numeric_limits<double>::infinity()
                             : plan        ? plan->cycles
                                           : 0;
  if (winograd > 0 && CppWinograd(work, stage, most_cycles)) return true;
  if (!plan) return false;
  CppContractionWriter(*plan, stage).Write();
  return true;
}

void CppContractionKnobs(const Program& program, const std::vector<const Contraction*>& works,
                         const Task& task, std::vector<Knob>& knobs) {
  if (works.empty()) return;
  const auto suits = [&](const Contraction* work) { return CppSuitsWinograd(*work, program, task); };
  if (std::any_of(works.begin(), works.end(), suits))
    knobs.push_back({"WINOGRAD",
                     {1, 0, 2},
                     false,
                     "convolutions of 3 x 3 by Winograd: 1 where the estimate says so, 0 none, 2 all",
                     -1});
  knobs.push_back({"CONTRACTION", {0, 1, 2}, false, "the way of products, by its rank in the estimate", -1});
  knobs.push_back(
      {"BLOCK", {4, 2, 8}, false, "columns of a block of a product, in quarters of the guess", -1});
}

}  // namespace kevin::search
