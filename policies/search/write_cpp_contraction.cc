// The text of a contraction by its plan (cpp_contraction.h): operands are copied where the plan says so, then tasks make
// blocks of sums and store them.

#include <fmt/format.h>

#include <algorithm>

#include "policies/search/cpp_contraction.h"

namespace kevin::search {
namespace {

class CppContractionWriter {
 public:
  CppContractionWriter(const CppContractionPlan& plan, CppStage& stage)
      : plan_(plan), work_(plan.work), stage_(stage), print_(stage) {}

  void Write();

 private:
  std::string N(int64_t value) const { return stage_.Number(value); }
  bool IsPacked() const { return plan_.right == CppRight::kPacked || plan_.right == CppRight::kTransposed; }
  bool HasTables() const { return plan_.right != CppRight::kDots; }
  bool RightHasTable() const { return plan_.right == CppRight::kDirect || plan_.right == CppRight::kField; }
  std::vector<Loop> LeftBatch() const;
  std::vector<Loop> ColumnLoops() const;
  std::vector<Loop> OuterLoops() const;
  int64_t Pitch() const { return (plan_.column_block + 15) / 16 * 16; }
  int64_t RowBlocks() const { return (plan_.m + plan_.row_block - 1) / plan_.row_block; }
  int64_t ColumnBlocks() const { return (plan_.columns + plan_.column_block - 1) / plan_.column_block; }

  // Floats of the sums of a task.
  int64_t Sums() const {
    const bool whole_block = plan_.k_block < plan_.k || plan_.splits > 1;
    return (whole_block ? plan_.row_block : 8) * (Pitch() + 16) + 64;
  }

  unsigned CountsOfRows(int64_t most) const;

  void Buffers();
  void Decode(const std::vector<Loop>& loops, const std::string& name, bool bind_all = true);
  int OpenK(const std::string& counter);
  void Tables(const std::string& counter);
  int OpenJobs(int64_t count, const std::string& job, int64_t parts);
  void FillField();
  void LimitSteps(const ExprPtr& bound, int n, const std::string& low, const std::string& high);
  void PackLeft();
  void Tasks();
  void TaskOperands();
  void PackRight();
  void RowTiles();
  void SumOfSplits();
  void StoreRows(const std::string& sums, const std::string& pitch, const std::string& from,
                 const std::string& to);
  using RowText = std::function<void(const std::string& column, const std::string& x)>;
  void ForColumns(const RowText& text);

  const CppContractionPlan& plan_;
  const Contraction& work_;
  CppStage& stage_;
  CppPrinter print_;
};

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
  return counts;
}

// Binds the loops to the digits of the row-major number `name`.
void CppContractionWriter::Decode(const std::vector<Loop>& loops, const std::string& name, bool) {
  int64_t below = 1;
  for (size_t i = loops.size(); i-- > 0;) {
    const std::string digit = print_.Fresh("d");
    std::string text = below == 1 ? name : fmt::format("{} / {}", name, N(below));
    if (i > 0) text = fmt::format("{} % {}", text, N(loops[i].extent));
    print_.Line(fmt::format("const long {} = {};", digit, loops[i].extent == 1 ? "0" : text));
    print_.Bind(loops[i].variable, digit);
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

// The positions of one row: steps along the last axis.
void CppContractionWriter::FillField() {
  const CppField& field = *plan_.field;
  std::vector<Loop> loops = field.rest;
  std::vector<int64_t> pitches = field.rest_pitch;
  std::vector<int> phase(field.axes.size()), step(field.axes.size());
  int next = kCppFirstVariable * 3;
  for (size_t i = 0; i < field.axes.size(); ++i) {
    phase[i] = next++;
    loops.push_back({phase[i], field.axes[i].stride});
    pitches.push_back(field.axes[i].phase_pitch);
  }
  for (size_t i = 0; i + 1 < field.axes.size(); ++i) {
    step[i] = next++;
    loops.push_back({step[i], field.axes[i].steps});
    pitches.push_back(field.axes[i].pitch);
  }
  const std::string row = print_.Fresh("row");
  const int jobs = OpenJobs(CppCount(loops), row, 16);
  Decode(loops, row);
  std::string inside = "true";
  for (size_t i = 0; i < field.axes.size(); ++i) {
    const CppField::Axis& axis = field.axes[i];
    const bool is_last = i + 1 == field.axes.size();
    const std::string at = print_.Scalar(Variable(phase[i], axis.stride));
    const std::string position = print_.Fresh("p");
    if (is_last) {
      print_.Line(fmt::format("const long {} = {};", position, at));
    } else {
      print_.Line(fmt::format("const long {} = {} * {} + {};", position,
                              print_.Scalar(Variable(step[i], axis.steps)), axis.stride, at));
      if (axis.low > 0) inside += fmt::format(" && {} >= {}", position, N(axis.low));
      if (axis.high < axis.positions || axis.steps * axis.stride > axis.positions)
        inside += fmt::format(" && {} < {}", position, N(axis.high));
    }
    print_.Bind(axis.position, position);
  }
  std::string to = "field";
  for (size_t i = 0; i < loops.size(); ++i) {
    if (loops[i].extent > 1)
      to += fmt::format(" + {} * {}", print_.Scalar(Variable(loops[i].variable, loops[i].extent)),
                        N(pitches[i]));
  }
  const CppField::Axis& last = field.axes.back();
  const std::string position = print_.Scalar(Variable(last.position, std::max<int64_t>(2, last.positions)));
  const int64_t stride = StrideOf(field.value->args[0], last.position).value_or(0) * last.stride;
  const auto first_step = [&](int64_t limit) {
    return last.stride == 1
               ? N(limit)
               : fmt::format("({} - {}) / {}", N(limit + last.stride - 1), position, last.stride);
  };
  print_.Open(fmt::format("if ({})", inside));
  std::string low = first_step(last.low), high = first_step(last.high);
  if (!field.bounds.empty()) {
    low = print_.Fresh("low");
    high = print_.Fresh("high");
    print_.Line(fmt::format("long {} = 0, {} = {};", low, high, N(last.steps)));
    for (const ExprPtr& bound : field.bounds) LimitSteps(bound, last.n, low, high);
    print_.Line(fmt::format("if ({0} > {1}) {0} = {1};", low, high));
  }
  print_.Line(fmt::format("CopyRow({}, {}, {}, {}, {}, {});",
                          print_.Address(field.value->id, field.value->args[0]), N(stride), low, high,
                          N(last.steps), to));
  print_.Close("} else {");
  print_.Line(
      fmt::format("  CopyRow({}, 1, 0, 0, {}, {});", stage_.Name(field.value->id), N(last.steps), to));
  print_.Line("}");
  print_.CloseAll(jobs);
}

// Narrows the points from `low` to `high` to those where `bound`, linear in `n`, is not negative.
void CppContractionWriter::LimitSteps(const ExprPtr& bound, int n, const std::string& low,
                                      const std::string& high) {
  const int64_t stride = StrideOf(bound, n).value_or(0);
  const ExprPtr at_zero = Substitute(bound, [&](const Expr& node) -> ExprPtr {
    return node.op == "variable" && node.id == n ? Int(0) : nullptr;
  });
  const std::string first = print_.Fresh("first");
  print_.Line(fmt::format("const long {} = {};", first, print_.Scalar(at_zero)));
  if (stride > 0) {
    print_.Line(fmt::format("if ({0} < 0 && (-{0} + {1}) / {2} > {3}) {3} = (-{0} + {1}) / {2};", first,
                            stride - 1, stride, low));
  } else {
    print_.Line(fmt::format("const long {0}_end = {0} < 0 ? 0 : {0} / {1} + 1;", first, -stride));
    print_.Line(fmt::format("if ({0}_end < {1}) {1} = {0}_end;", first, high));
  }
}

void CppContractionWriter::PackLeft() {
  std::vector<Loop> loops = LeftBatch();
  const int block = kCppFirstVariable * 3, tile = block + 1;
  const std::string index = print_.Fresh("tile");
  print_.Line(fmt::format("const long tiles = ({} + kTileRows - 1) / kTileRows;", N(plan_.row_block)));
  CppOpenJobs(print_, fmt::format("{} * tiles", N(CppCount(loops) * RowBlocks())), index, "4");
  print_.Line(fmt::format("const long batch_block = {} / tiles, tile_of_block = {} % tiles;", index, index));
  loops.push_back({block, RowBlocks()});
  (void)tile;
  Decode(loops, "batch_block");
  print_.Line(fmt::format("const long first = {} * {};",
                          print_.Scalar(Variable(block, std::max<int64_t>(RowBlocks(), 2))),
                          N(plan_.row_block)));
  print_.Line(fmt::format("const long count = {0} - first < {1} ? {0} - first : {1};", N(plan_.m),
                          N(plan_.row_block)));
  print_.Line("const long own_tiles = (count + kTileRows - 1) / kTileRows;");
  print_.Line("if (tile_of_block >= own_tiles) continue;");
  print_.Line(
      "const long from = first + tile_of_block * count / own_tiles, to = first + (tile_of_block + 1) * count / own_tiles;");
  print_.Line(fmt::format("float* const tile_at = left + {} * {} * kTileRows;", index, N(plan_.k)));
  print_.Line("long term = 0;");
  const int scopes = OpenK("term");
  print_.Line("float* const place = tile_at + term * kTileRows;");
  const bool lanes = work_.m.size() == 1 && work_.lhs->op == "load" &&
                     StrideOf(work_.lhs->args[0], work_.m[0].variable) == 1;
  if (lanes) {
    print_.Open("Walk<1>(from, to, [&](auto part, long r, int) __attribute__((always_inline))");
    print_.BindLanes(work_.m[0].variable, "r");
    print_.Line(fmt::format("part.Store(place + (r - from), {});", print_.Lanes(work_.lhs)));
    print_.Close("});");
  } else {
    print_.Open("for (long r = from; r < to; ++r)");
    Decode(work_.m, "r");
    print_.Line(fmt::format("place[r - from] = {};", print_.Scalar(work_.lhs)));
    print_.Close();
  }
  print_.CloseAll(scopes + 2);
}

// Rows of neighbouring columns between the columns `begin` and `end` (names in scope): calls `text` inside a walk.
void CppContractionWriter::ForColumns(const RowText& text) {
  const std::vector<Loop> loops = ColumnLoops();
  std::string base = "0";
  int64_t inside = plan_.columns;
  for (size_t i = 0; i + 1 < loops.size(); ++i) {
    const std::string v = print_.Fresh("c"), low = print_.Fresh("low"), high = print_.Fresh("high"),
                      next = print_.Fresh("base");
    const std::string pitch = N(plan_.pitch[i]);
    print_.Line(fmt::format("const long {0} = begin > {1} ? (begin - {1}) / {2} : 0;", low, base, pitch));
    print_.Line(
        fmt::format("const long {0} = (end - 1 - {1}) / {2} + 1 < {3} ? (end - 1 - {1}) / {2} + 1 : {3};",
                    high, base, pitch, N(loops[i].extent)));
    print_.Open(fmt::format("for (long {0} = {1}; {0} < {2}; ++{0})", v, low, high));
    print_.Bind(loops[i].variable, v);
    print_.Line(fmt::format("const long {} = {} + {} * {};", next, base, v, pitch));
    base = next;
  }
  (void)inside;
  const std::string low = print_.Fresh("low"), high = print_.Fresh("high"), x = print_.Fresh("x");
  print_.Line(fmt::format("const long {0} = begin > {1} ? begin - {1} : 0;", low, base));
  print_.Line(
      fmt::format("const long {0} = end - {1} < {2} ? end - {1} : {2};", high, base, N(loops.back().extent)));
  print_.Open(fmt::format("Walk<1>({}, {}, [&](auto part, long {}, int) __attribute__((always_inline))", low,
                          high, x));
  print_.BindLanes(loops.back().variable, x);
  text(base == "0" ? x : fmt::format("{} + {}", base, x), x);
  print_.Close("});");
  for (size_t i = 0; i + 1 < loops.size(); ++i) print_.Close();
}

// A block of the right operand, `terms` elements of k from `k_begin` on.
void CppContractionWriter::PackRight() {
  if (plan_.right == CppRight::kTransposed) {
    print_.Line(fmt::format("Transpose(right + begin * {} + k_begin, {}, packed, {}, k_count, end - begin);",
                            N(plan_.right_column), N(plan_.right_column), N(Pitch())));
    return;
  }
  print_.Open("for (long term = k_begin; term < k_begin + k_count; ++term)");
  std::string rest = "term";
  for (size_t i = work_.k.size(); i-- > 0;) {
    const ExprPtr limit = i < work_.k_limits.size() ? work_.k_limits[i] : nullptr;
    const std::string end = limit ? print_.Scalar(limit) : N(work_.k[i].extent);
    const std::string digit = print_.Fresh("k");
    print_.Line(fmt::format("const long {} = {};", digit, i == 0 ? rest : fmt::format("{} % {}", rest, end)));
    if (i > 0) {
      const std::string above = print_.Fresh("above");
      print_.Line(fmt::format("const long {} = {} / {};", above, rest, end));
      rest = above;
    }
    print_.Bind(work_.k[i].variable, digit);
  }
  print_.Line(fmt::format("float* const place = packed + (term - k_begin) * {} - begin;", N(Pitch())));
  ForColumns([&](const std::string& column, const std::string&) {
    print_.Line(fmt::format("part.Store(place + {}, {});", column, print_.Lanes(work_.rhs)));
  });
  print_.Close();
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
  loops.push_back({split, plan_.splits});
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

}  // namespace

bool CppContraction(const Contraction& work, CppStage& stage) {
  const std::optional<CppContractionPlan> plan = CppPlanContraction(work, stage);
  if (!plan) return false;
  CppContractionWriter(*plan, stage).Write();
  return true;
}

void CppContractionKnobs(const std::vector<const Contraction*>& works, const Task&,
                         std::vector<Knob>& knobs) {
  if (works.empty()) return;
  knobs.push_back({"CONTRACTION", {0, 1, 2}, false, "the way of products, by its rank in the estimate", -1});
  knobs.push_back(
      {"BLOCK", {4, 2, 8}, false, "columns of a block of a product, in quarters of the guess", -1});
}

}  // namespace kevin::search
