// Scans. Along neighbouring elements a block scans a row tile by tile: packs, lanes, warps, with a carry from tile to
// tile; few long rows are first folded in parts. Along another loop a thread keeps the running values of its columns.

#include <fmt/format.h>

#include <algorithm>

#include "policies/search/cuda_text.h"

namespace kevin::search {
namespace {

struct CudaScanOp {
  std::string type, start, join;

  CudaScanOp(const std::string& op, const Expr& value) {
    const bool is_float = value.type == Type::kFloat;
    type = is_float ? "float" : "long";
    if (op == "sum") start = is_float ? "0.0f" : "0L", join = "a + b";
    if (op == "product") start = is_float ? "1.0f" : "1L", join = "a * b";
    if (op == "max") start = is_float ? "-Infinity()" : "-9223372036854775807L", join = "NanMax(a, b)";
    if (op == "min") start = is_float ? "Infinity()" : "9223372036854775807L", join = "NanMin(a, b)";
    if (op == "logsumexp") type = "float", start = "-Infinity()", join = "LogAddExp(a, b)";
    if (join.empty()) throw Unsupported("a scan `" + op + "` has no text in CUDA");
    lambda = fmt::format("const auto joined = []({0} a, {0} b) {{ return {1}; }};\n", type, join);
  }
  std::string lambda;
};

constexpr const char* kCudaScanTile = R"({type} before[kEach], running = {start};
#pragma unroll
for (int u = 0; u < kEach; ++u) {{
{type} upto = x[u].at[{first}];
#pragma unroll
for (int k = 1; k < kWidth; ++k) upto = joined(upto, x[u].at[{position}]);
#pragma unroll
for (int step = 1; step < 32; step *= 2) {{
const {type} lower = __shfl_up_sync(0xffffffffu, upto, step);
if (lane >= step) upto = joined(lower, upto);
}}
const {type} lower = __shfl_up_sync(0xffffffffu, upto, 1);
before[u] = lane == 0 ? running : joined(running, lower);
running = joined(running, __shfl_sync(0xffffffffu, upto, 31));
}}
if (lane == 0) totals[turn][warp] = running;
__syncthreads();
{type} offset = carry;
#pragma unroll
for (int k = 0; k < kWarps; ++k) {{
if (k == warp) offset = carry;
carry = joined(carry, totals[turn][k]);
}}
)";

// Rows: a block scans tiles of kThreads * kEach packs along the scan, one after the other; `parts` blocks share a row.
// Columns: a thread has a pack of neighbouring scans.
struct CudaScanPlan {
  Scan work;  // `along`, or the last outer loop of columns, in packs
  bool columns = false;
  int64_t width = 1, threads = 32, each = 1, parts = 1;
};

CudaScanPlan PlanCudaScan(const CudaText& text, const Scan& whole) {
  CudaScanPlan plan;
  Scan& work = plan.work = whole;
  int64_t along = 0, across = 0;
  const auto count = [&](const ExprPtr& offset) {
    along += StrideOf(offset, work.along.variable) == 1;
    across += !work.outer.empty() && StrideOf(offset, work.outer.back().variable) == 1;
  };
  for (const CudaLoad& load : LoadsOf({work.value})) count(load.load->args[0]);
  for (const Store& store : work.stores) count(store.offset);
  plan.columns = across > along;
  const Loop packed = plan.columns ? work.outer.back() : work.along;
  for (plan.width = 4; plan.width > 1 && packed.extent % plan.width != 0; plan.width /= 2) {
  }
  const int64_t per_pack = packed.extent / plan.width;
  const auto pack = [&](ExprPtr& expr) {
    if (!expr) return;
    expr = Substitute(expr, [&](const Expr& e) -> ExprPtr {
      if (e.op != "variable" || e.id != packed.variable) return nullptr;
      ExprPtr place = Variable(e.id, per_pack);
      if (!plan.columns && work.reverse) place = AddInt(Int(per_pack - 1), Scaled(place, -1));
      return AddInt(Scaled(place, plan.width), Variable(kNeighbour, plan.width));
    });
  };
  pack(work.value);
  for (Store& store : work.stores) pack(store.offset), pack(store.value), pack(store.guard);
  (plan.columns ? work.outer.back() : work.along).extent = per_pack;
  const int64_t rows = Points(work.outer), processors = text.device().multiprocessors;
  if (plan.columns) {
    plan.threads = rows >= processors * 256 ? 128 : 64;
    return plan;
  }
  while (plan.threads < 512 && plan.threads * 4 < per_pack) plan.threads *= 2;
  plan.each = std::clamp<int64_t>((per_pack + plan.threads - 1) / plan.threads, 1, 4);
  if (rows < 2 * processors && per_pack >= 8192) {
    const int64_t wanted = (8 * processors + rows - 1) / rows;
    plan.parts = std::clamp<int64_t>(std::min(wanted, per_pack / 2048), 1, 65535);
  }
  return plan;
}

class CudaScanWriter {
 public:
  CudaScanWriter(CudaText& text, const Stage& stage, const Scan& whole)
      : text_(text), stage_(stage), plan_(PlanCudaScan(text, whole)), op_(whole.op, *whole.value) {}

  void Write() {
    if (plan_.columns) return WriteColumns();
    const int64_t rows = Points(work_.outer);
    if (plan_.parts > 1) {
      partial_ = text_.AddWorkspace(op_.type, fmt::format("{}L", rows * plan_.parts));
      WriteRows(true);
    }
    WriteRows(false);
  }

 private:
  // The value of each neighbour into x[u].
  std::string Values(CudaPrinter& printer, const CudaLoads& loads, const std::string& slot) const {
    return NeighbourLoop(
        printer, {}, kNeighbour, plan_.width, true, [&](CudaPrinter& inside) { loads.Bind(inside, "w"); },
        [&](CudaPrinter& inside) {
          const std::string value = inside.Value(work_.value);
          return inside.TakeLines() + fmt::format("x{}.at[w] = {}({});\n", slot, op_.type, value);
        });
  }

  std::string Stores(CudaPrinter& printer, const CudaLoads& loads, const std::string& slot) const {
    return NeighbourLoop(printer, work_.stores, kNeighbour, plan_.width, true, [&](CudaPrinter& inside) {
      loads.Bind(inside, "w");
      inside.SetResult(0, fmt::format("x{}.at[w]", slot));
    });
  }

  std::vector<CudaLoad> AllLoads() const {
    std::vector<ExprPtr> exprs = {work_.value};
    return LoadsOf(exprs);
  }

  std::string Tile() const {
    return fmt::format(fmt::runtime(kCudaScanTile), fmt::arg("type", op_.type), fmt::arg("start", op_.start),
                       fmt::arg("first", work_.reverse ? "kWidth - 1" : "0"),
                       fmt::arg("position", work_.reverse ? "kWidth - 1 - k" : "k"));
  }

  // In place: x[u] becomes the running values, from `run`.
  std::string Replace(const std::string& slot) const {
    return fmt::format(
        "#pragma unroll\nfor (int k = 0; k < kWidth; ++k) {{\nconst {0} value = x{1}.at[{2}];\n{3}run = joined(run, value);\n{4}}}\n",
        op_.type, slot, work_.reverse && !plan_.columns ? "kWidth - 1 - k" : "k",
        work_.exclusive ? fmt::format("x{}.at[{}] = run;\n", slot, work_.reverse ? "kWidth - 1 - k" : "k")
                        : "",
        work_.exclusive ? ""
                        : fmt::format("x{}.at[{}] = run;\n", slot, work_.reverse ? "kWidth - 1 - k" : "k"));
  }

  void WriteRows(bool only_sums) {
    CudaKernel kernel(text_, stage_);
    if (plan_.parts > 1) kernel.AddParameter(op_.type + "* partial", partial_);
    CudaPrinter row_printer(kernel);
    const std::string threads = text_.KnobText("THREADS", plan_.threads);
    const std::string packs = kernel.Number(work_.along.extent), count = CudaCountType(work_.along.extent);
    std::string body = fmt::format(
        "constexpr int kThreads = {}, kEach = {}, kWidth = {}, kWarps = kThreads / 32;\n{}"
        "const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;\nconst unsigned row = blockIdx.x;\n",
        threads, text_.KnobText("EACH", plan_.each), plan_.width, op_.lambda);
    body += DecodeLoops(row_printer, work_.outer, "row");
    body += fmt::format("const {1} tiles = (({1})({0}) + kThreads * kEach - 1) / (kThreads * kEach);\n",
                        packs, count);
    body += fmt::format(
        "const unsigned part = blockIdx.y;\nconst {1} per_part = (tiles + {0} - 1) / {0} * (kThreads * kEach);\n",
        plan_.parts, count);
    body += fmt::format("const {1} begin = part * per_part, end = min(begin + per_part, ({1})({0}));\n",
                        packs, count);
    body += fmt::format("{} carry = {};\n", op_.type, op_.start);
    if (!only_sums) {
      body +=
          fmt::format("__shared__ {} totals[2][kWarps];\n", op_.type);  // two: one barrier a tile is enough
      if (plan_.parts > 1)
        body += fmt::format(
            "for (unsigned p = 0; p < part; ++p) carry = joined(carry, partial[row * (long){} + p]);\n",
            plan_.parts);
      body += "int turn = 0;\n";
    }
    CudaLoads loads(kernel, AllLoads(), kNeighbour, plan_.width, "[u]", "[kEach]");
    body += fmt::format("for ({} tile = begin; tile < end; tile += kThreads * kEach{}) {{\n", count,
                        only_sums ? "" : ", turn ^= 1");
    const std::string each = fmt::format(
        "#pragma unroll\nfor (int u = 0; u < kEach; ++u) {{\nconst {} i = tile + (warp * kEach + u) * 32 + lane;\n",
        count);
    const std::string variable =
        IsWideCudaCount(work_.along.extent) ? "const long at = i;\n" : "const int at = int(i);\n";
    CudaPrinter printer = row_printer;
    printer.SetVariable(work_.along.variable, "at");
    body += loads.Declarations() + fmt::format("Pack<kWidth, {}> x[kEach];\n", op_.type) + each +
            "if (i < end) {\n" + variable;
    body += loads.Statements(printer, !only_sums) + "}\n}\n" + each;
    body += "if (i < end) {\n" + variable + Values(printer, loads, "[u]");
    body += fmt::format(
        "}} else {{\n#pragma unroll\nfor (int w = 0; w < kWidth; ++w) x[u].at[w] = {};\n}}\n}}\n", op_.start);
    if (only_sums) {
      body += fmt::format(
          "{0} before = {1};\n#pragma unroll\nfor (int u = 0; u < kEach; ++u) {{\n#pragma unroll\nfor (int k = 0; k < kWidth; ++k) "
          "before = joined(before, x[u].at[k]);\n}}\ncarry = joined(carry, before);\n}}\n"
          "carry = AcrossBlock<kThreads>(carry, joined);\nif (threadIdx.x == 0) partial[row * (long){2} + part] = carry;\n",
          op_.type, op_.start, plan_.parts);
    } else {
      body += Tile() + each + "if (i < end) {\n" + variable +
              fmt::format("{} run = joined(offset, before[u]);\n", op_.type);
      body += Replace("[u]") + Stores(printer, loads, "[u]") + "}\n}\n}\n";
    }
    const int64_t rows = Points(work_.outer);
    if (IsWideCudaCount(rows))
      throw Unsupported(fmt::format("a scan of {} rows cannot be written in CUDA", rows));
    const std::string grid =
        plan_.parts > 1 ? fmt::format("dim3({}, {})", rows, plan_.parts) : std::to_string(rows);
    kernel.Launch(only_sums ? "ScanPart" : "Scan", body, grid, threads, threads);
  }

  void WriteColumns() {
    CudaKernel kernel(text_, stage_);
    CudaPrinter printer(kernel);
    const int64_t points = Points(work_.outer);
    const std::string threads = text_.KnobText("THREADS", plan_.threads);
    const std::string extent = kernel.Number(work_.along.extent);
    std::string body = fmt::format(
        "constexpr int kThreads = {0}, kEach = 8, kWidth = {1};\n{2}const {4} point = ({4})blockIdx.x * kThreads + threadIdx.x;\n"
        "if (point >= ({4})({3})) return;\n",
        threads, plan_.width, op_.lambda, kernel.Number(points), CudaCountType(points));
    body += DecodeLoops(printer, work_.outer, "point");
    body += fmt::format(
        "Pack<kWidth, {0}> run;\n#pragma unroll\nfor (int w = 0; w < kWidth; ++w) run.at[w] = {1};\n",
        op_.type, op_.start);
    CudaLoads loads(kernel, AllLoads(), kNeighbour, plan_.width, "[u]", "[kEach]");
    const char* at = IsWideCudaCount(work_.along.extent + 8) ? "long" : "int";
    const std::string each = fmt::format(
        "#pragma unroll\nfor (int u = 0; u < kEach; ++u) {{\nif (base + u < {0}) {{\nconst {3} at = {1}base + u{2};\n",
        extent, work_.reverse ? extent + " - 1 - (" : "", work_.reverse ? ")" : "", at);
    printer.SetVariable(work_.along.variable, "at");
    body += fmt::format("for ({} base = 0; base < {}; base += kEach) {{\n", at, extent) +
            loads.Declarations() + each;
    body += loads.Statements(printer, true) + "}\n}\n" + each +
            fmt::format("Pack<kWidth, {}> x;\n", op_.type) + Values(printer, loads, "");
    const std::string keep = "x.at[w] = run.at[w];\n";
    body += fmt::format(
        "#pragma unroll\nfor (int w = 0; w < kWidth; ++w) {{\nconst {} value = x.at[w];\n{}run.at[w] = joined(run.at[w], value);\n{}}}\n",
        op_.type, work_.exclusive ? keep : "", work_.exclusive ? "" : keep);
    body += Stores(printer, loads, "") + "}\n}\n}\n";
    kernel.Launch("ScanColumns", body, fmt::format("ceil_div({}L, {})", points, threads), threads, threads);
  }

  CudaText& text_;
  const Stage& stage_;
  const CudaScanPlan plan_;
  const Scan& work_ = plan_.work;
  const CudaScanOp op_;
  std::string partial_;
};

}  // namespace

std::vector<Knob> CudaScanKnobs(const CudaText& text, const Scan& work) {
  const CudaScanPlan plan = PlanCudaScan(text, work);
  Knob threads{"THREADS", {plan.threads}, true, "threads of a block"};
  for (const int64_t value : {128, 256, 512, 1024}) {
    const bool is_useful =
        plan.columns ? value <= 512 : value <= std::max<int64_t>(plan.work.along.extent, 128);
    if (value != plan.threads && is_useful) threads.values.push_back(value);
  }
  std::vector<Knob> knobs = {threads};
  if (plan.columns) return knobs;
  Knob each{"EACH", {plan.each}, true, "packs of a thread in a tile"};
  for (const int64_t value : {1, 2, 4, 8}) {
    if (value != plan.each && value * plan.width <= 32) each.values.push_back(value);
  }
  knobs.push_back(each);
  return knobs;
}

void WriteCudaScan(CudaText& text, const Stage& stage, const Scan& work) {
  CudaScanWriter(text, stage, work).Write();
}

}  // namespace kevin::search
