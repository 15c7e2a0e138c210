// The kernel of attention in 16 bits on the tensor cores (cuda_attention_half.cc), and its tiles.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "policies/search/cuda_attention.h"
#include "policies/search/cuda_contraction.h"

namespace kevin::search {
namespace {

constexpr int64_t kPackWidth = 8;     // 16 bytes
constexpr int64_t kWidestHalf = 256;  // more results than a thread has registers for
constexpr double kLog2E = 1.4426950408889634;

int64_t RoundedUp(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

// The loads of an operand: one, or two that are added at equal offsets, the larger part first (SplitAttentionOperands).
// None: another expression.
std::vector<const Expr*> PartsOf(const ExprPtr& operand) {
  if (operand->op == "load") return {operand.get()};
  if (operand->op != "add") return {};
  const Expr *a = operand->args[0].get(), *b = operand->args[1].get();
  if (a->op != "load" || b->op != "load" || a->args[0]->key != b->args[0]->key) return {};
  if (a->id > b->id) std::swap(a, b);
  return {a, b};
}

// The dtype of loads that move in packs along the last of `columns`, else "".
std::string PackedType(const Program& program, const ExprPtr& operand, const std::vector<Loop>& columns) {
  if (columns.empty() || columns.back().extent % kPackWidth != 0) return "";
  std::string dtype;
  for (const Expr* part : PartsOf(operand)) {
    const Buffer& buffer = program.buffers[static_cast<size_t>(part->id)];
    if (buffer.dtype != "float16" && buffer.dtype != "bfloat16") return "";
    if (!dtype.empty() && buffer.dtype != dtype) return "";
    const ExprPtr offset = InPacks(part->args[0], columns.back(), kPackWidth, kNeighbour);
    if (NeighboursOf(buffer, offset, nullptr, kNeighbour, kPackWidth) != Neighbours::kPack) return "";
    dtype = buffer.dtype;
  }
  return dtype;
}

struct CudaAttentionShape {
  int64_t depth, width;            // rounded up to 16
  int64_t query_parts, key_parts;  // tensors that are added
  int64_t QueryPitch() const { return query_parts * (depth + 8); }
  int64_t KeyPitch() const { return key_parts * (depth + 8) + width + 8; }
  // Two tiles of keys and values beside the queries; then the results, of every share of the keys.
  int64_t SharedBytes(int64_t queries, int64_t keys) const {
    const int64_t rows = std::max<int64_t>(queries, 64);
    return std::max(2 * (queries * QueryPitch() + 2 * keys * KeyPitch()), 4 * rows * (width + 10));
  }
};
CudaAttentionShape ShapeOf(const Attention& work) {
  return {RoundedUp(Points(work.depth), 16), RoundedUp(Points(work.width), 16),
          static_cast<int64_t>(PartsOf(work.query).size()), static_cast<int64_t>(PartsOf(work.key).size())};
}

// c of a score c * result 0, else 0.
double FactorOf(const ExprPtr& score) {
  if (score->op == "result") return 1;
  if (score->op != "mul") return 0;
  for (const size_t at : {size_t{0}, size_t{1}}) {
    if (score->args[at]->op == "result" && score->args[1 - at]->op == "constant")
      return score->args[1 - at]->number;
  }
  return 0;
}

class CudaAttentionHalfWriter {
 public:
  CudaAttentionHalfWriter(CudaText& text, const Stage& stage, const Attention& work)
      : text_(text), kernel_(text, stage), work_(work), printer_(kernel_), shape_(ShapeOf(work)) {}

  void Write() {
    const CudaAttentionTiles tiles = ChooseCudaAttentionTiles(text_.device(), work_);
    const std::string tile_q = text_.KnobText("TILE_Q", tiles.queries[0]),
                      tile_k = text_.KnobText("TILE_KEYS", tiles.keys[0]);
    const int query = PartsOf(work_.query)[0]->id;
    const std::string& dtype = text_.program().buffers[static_cast<size_t>(query)].dtype;
    element_ = text_.ElementType(query);
    for (const char* part : {kCudaContractionFeed, kCudaContractionHalf, kCudaAttentionHalf})
      text_.AddDeclarations(part);
    const std::string queries = kernel_.Number(Points(work_.queries)),
                      keys = kernel_.Number(Points(work_.keys));
    std::string body =
        fmt::format("constexpr int kQ = {}, kK = {}, kD = {}, kW = {}, kThreads = kQ >= 64 ? 2 * kQ : 128;\n",
                    tile_q, tile_k, shape_.depth, shape_.width);
    body += fmt::format(
        "const unsigned all_q = {}, all_k = {}, tiles = (all_q + kQ - 1) / kQ, batch = blockIdx.x / tiles, first_q = (tiles "
        "- 1 - blockIdx.x % tiles) * kQ;\n",
        queries, keys);
    body += DecodeLoops(printer_, work_.batch, "batch");
    body += Bring("bring_query", work_.query, work_.queries, work_.depth, "kQ", "kD", "all_q", "first_q + ");
    body += Bring("bring_key", work_.key, work_.keys, work_.depth, "kK", "kD", "all_k", "first + ");
    body += Bring("bring_value", work_.value, work_.keys, work_.width, "kK", "kW", "all_k", "first + ");
    const double factor = FactorOf(work_.score);
    body += Score(factor > 0) + Finish();
    // Keys that all queries of the block attend to, and the first that none does.
    body += work_.causal
                ? "const unsigned inside = min(all_k, first_q + 1), last = min(all_k, first_q + kQ);\n"
                : "const unsigned inside = all_k, last = all_k;\n";
    body += fmt::format(
        "AttendTiles<kQ, kK, kD, kW, {}, {}, {}, {}, {}>({}, first_q, inside, last, bring_query, bring_key, bring_value, score, "
        "finish);\n",
        shape_.query_parts, shape_.key_parts, dtype == "bfloat16", work_.masked_is_zero, element_,
        kernel_.Float(kLog2E * (factor > 0 ? factor : 1)));
    const std::string threads = fmt::format("({0} >= 64 ? 2 * {0} : 128)", tile_q);
    kernel_.Launch("Attend", body,
                   fmt::format("{}L * ceil_div({}, {})", Points(work_.batch), Points(work_.queries), tile_q),
                   threads, threads,
                   fmt::format("max(2 * ({0} * {2} + 2 * {1} * {3}), 4 * max({0}, 64) * {4})", tile_q, tile_k,
                               shape_.QueryPitch(), shape_.KeyPitch(), shape_.width + 10));
  }

 private:
  // The function that copies rows [first, first + count) of an operand, part after part, zeros beyond the ends.
  std::string Bring(const std::string& name, const ExprPtr& operand, const std::vector<Loop>& rows,
                    const std::vector<Loop>& columns, const std::string& count, const std::string& padded,
                    const std::string& limit, const std::string& first) {
    std::vector<Loop> packs = columns;
    packs.back().extent /= kPackWidth;
    const std::vector<const Expr*> parts = PartsOf(operand);
    const ExprPtr offset =
        Substitute(InPacks(parts[0]->args[0], columns.back(), kPackWidth, kNeighbour),
                   [](const Expr& e) { return e.op == "variable" && e.id == kNeighbour ? Int(0) : nullptr; });
    CudaPrinter printer = printer_;
    std::string text = fmt::format("const auto {} = [&]({}* to{}) {{\n", name, element_,
                                   name == "bring_query" ? "" : ", unsigned first");
    text += fmt::format(
        "#pragma unroll 4\nfor (int i = threadIdx.x; i < {0} * {1} / 8; i += kThreads) {{\n"
        "const unsigned row = i / ({1} / 8), pack = i % ({1} / 8);\n"
        "const bool is_there = {2}row < {3} && pack < {4};\n"
        "const unsigned point = is_there ? {2}row : 0, column = is_there ? pack : 0;\n",
        count, padded, first, limit, Points(packs));
    text += DecodeLoops(printer, rows, "point") + DecodeLoops(printer, packs, "column");
    const std::string at = printer.Value(offset);
    text += printer.TakeLines();
    for (size_t i = 0; i < parts.size(); ++i)
      text += fmt::format(
          "ContractCopy<16>(to + ({0} * {1} + row) * ({2} + 8) + pack * 8, {3} + ({4}), is_there);\n", i,
          count, padded, kernel_.Buffer(parts[i]->id), at);
    return text + "}\n};\n";
  }

  // `is_scaled`: the factor is part of the exponent, and the score is the product.
  std::string Score(bool is_scaled) {
    std::string text =
        "const auto score = [&](float product, unsigned query, unsigned key, bool is_inside) -> float {\n";
    const std::string attended = work_.causal ? "key < all_k && key <= query" : "key < all_k";
    if (is_scaled)
      return text + fmt::format("return is_inside || ({}) ? product : -Infinity();\n}};\n", attended);
    CudaPrinter printer = printer_;
    printer.SetResult(0, "product");
    text += fmt::format("if (query >= all_q || !({})) return -Infinity();\n", attended);
    text += DecodeLoops(printer, work_.queries, "query") + DecodeLoops(printer, work_.keys, "key");
    const std::string value = printer.Value(work_.score);
    return text + printer.TakeLines() + "return " + value + ";\n};\n";
  }

  std::string Finish() {
    CudaPrinter printer = printer_;
    const Loop& inner = work_.width.back();
    std::vector<Loop> packs = work_.width;
    packs.back().extent /= kPackWidth;
    std::vector<Store> stores = work_.stores;
    std::vector<ExprPtr> exprs;
    for (Store& store : stores) {
      for (ExprPtr* expr : {&store.offset, &store.value, &store.guard}) {
        *expr = InPacks(*expr, inner, kPackWidth, kNeighbour);
        exprs.push_back(*expr);
      }
    }
    std::string text = fmt::format(
        "const auto finish = [&](int row, int pack, const Pack<8>& values) {{\nconst unsigned query = first_q + row, column "
        "= pack;\nif (query >= all_q || column >= {}) return;\n",
        Points(packs));
    text += DecodeLoops(printer, work_.queries, "query") + DecodeLoops(printer, packs, "column");
    CudaLoads loads(kernel_, LoadsOf(exprs), kNeighbour, kPackWidth, "", "");
    text += loads.Declarations() + loads.Statements(printer, false);
    text += NeighbourLoop(printer, stores, kNeighbour, kPackWidth, false, [&](CudaPrinter& inside) {
      loads.Bind(inside, "w");
      inside.SetResult(1, "values.at[w]");
    });
    return text + "};\n";
  }

  CudaText& text_;
  CudaKernel kernel_;
  const Attention& work_;
  CudaPrinter printer_;
  CudaAttentionShape shape_;
  std::string element_;
};

}  // namespace

bool SuitsCudaAttentionHalf(const Program& program, const Attention& work) {
  if (!work.softmax || work.width.empty()) return false;
  const CudaAttentionShape shape = ShapeOf(work);
  if (std::max(shape.depth, shape.width) > kWidestHalf) return false;
  constexpr int64_t kMost = (int64_t{1} << 31) - 1024;
  if (Points(work.batch) * ((Points(work.queries) + 15) / 16) > kMost) return false;
  if (std::max(Points(work.queries), Points(work.keys)) > kMost) return false;
  const std::string type = PackedType(program, work.query, work.depth);
  return !type.empty() && PackedType(program, work.key, work.depth) == type &&
         PackedType(program, work.value, work.width) == type;
}

CudaAttentionTiles ChooseCudaAttentionTiles(const TaskDevice& device, const Attention& work) {
  const CudaAttentionShape shape = ShapeOf(work);
  const int64_t queries = Points(work.queries), batch = Points(work.batch);
  const bool is_wide = std::max(shape.depth, shape.width) > 128;
  CudaAttentionTiles tiles;
  // As many queries to a block as leave every multiprocessor a block: keys and values are read once a block.
  int64_t best = is_wide ? 64 : 128;
  while (best > 16 && batch * ((queries + best - 1) / best) < device.multiprocessors) best /= 2;
  tiles.queries = {best};
  for (const int64_t other : {best * 2, best / 2}) {
    if (other >= 16 && other <= (is_wide ? 64 : 128)) tiles.queries.push_back(other);
  }
  const int64_t most_keys = RoundedUp(Points(work.keys), 64);
  tiles.keys = {64};
  if (best < 64 && !is_wide && most_keys > 64) tiles.keys = {128, 64};
  if (best >= 64 && !is_wide && most_keys > 64) tiles.keys.push_back(128);
  const int64_t room = device.block_shared_bytes;
  const auto fits = [&](int64_t q, int64_t k) { return shape.SharedBytes(q, k) <= room; };
  while (tiles.keys.size() > 1 && !fits(tiles.queries[0], tiles.keys.back())) tiles.keys.pop_back();
  std::erase_if(tiles.queries, [&](int64_t q) {
    return q != best && !fits(q, *std::max_element(tiles.keys.begin(), tiles.keys.end()));
  });
  while (!fits(tiles.queries[0], tiles.keys[0]) && (tiles.queries[0] > 16 || tiles.keys[0] > 64)) {
    int64_t& larger = tiles.keys[0] > 64 ? tiles.keys[0] : tiles.queries[0];
    larger /= 2;
    tiles.queries.resize(1), tiles.keys.resize(1);
  }
  return tiles;
}

std::vector<Knob> CudaAttentionKnobs(const Program& program, const Task& task, const Attention& work) {
  if (!SuitsCudaAttentionHalf(program, work)) return {};
  const CudaAttentionTiles tiles = ChooseCudaAttentionTiles(task.device, work);
  return {{"TILE_Q", tiles.queries, true, "queries of a block"},
          {"TILE_KEYS", tiles.keys, true, "keys of a tile"}};
}

void WriteCudaAttentionHalf(CudaText& text, const Stage& stage, const Attention& work) {
  CudaAttentionHalfWriter(text, stage, work).Write();
}

}  // namespace kevin::search
