// Pointwise stages: each thread computes several packs of neighbouring elements; the packs of a warp lie side by side.

#include <fmt/format.h>

#include <algorithm>

#include "policies/search/cuda_text.h"

namespace kevin::search {
namespace {

// What moves in packs of `width` along the last loop: the points of all accesses, weighted by bytes.
int64_t CudaPackScore(const CudaText& text, const Pointwise& work, int64_t width) {
  const Loop& last = work.loops.back();
  int64_t score = 0;
  const auto add = [&](int buffer, const ExprPtr& offset, const ExprPtr& condition) {
    const Buffer& one = text.program().buffers.at(buffer);
    const ExprPtr packed = InPacks(offset, last, width, kNeighbour),
                  inside = InPacks(condition, last, width, kNeighbour);
    const int64_t bytes = text.ElementBytes(buffer);
    switch (NeighboursOf(one, packed, inside, kNeighbour, width)) {
      case Neighbours::kPack:
        score += bytes * std::min<int64_t>(width, 16 / bytes);
        break;
      case Neighbours::kSame:
        score += width;
        break;
      case Neighbours::kEach:
        score += 0;
        break;
    }
  };
  std::vector<ExprPtr> exprs;
  for (const Store& store : work.stores) {
    add(store.buffer, store.offset, store.guard);
    exprs.insert(exprs.end(), {store.value, store.guard, store.offset});
  }
  for (const CudaLoad& load : LoadsOf(exprs)) add(load.load->id, load.load->args[0], load.condition);
  return score;
}

int64_t CudaPackWidth(const CudaText& text, const Pointwise& work) {
  if (work.loops.empty()) return 1;
  int64_t narrowest = 8;
  for (const Store& store : work.stores)
    narrowest = std::min<int64_t>(narrowest, std::max(2, text.ElementBytes(store.buffer)));
  int64_t best = 1, best_score = CudaPackScore(text, work, 1);
  for (int64_t width = 2; width <= 16 / narrowest; width *= 2) {
    if (work.loops.back().extent % width != 0) break;
    const int64_t score = CudaPackScore(text, work, width);
    if (score > best_score) best = width, best_score = score;
  }
  return best;
}

struct CudaPointwiseShape {
  int64_t threads, each;
};

// Small grids: one pack a thread, so that all multiprocessors work.
CudaPointwiseShape ShapeOf(const CudaText& text, int64_t packs, int64_t registers) {
  const int64_t room = int64_t{2048} * text.device().multiprocessors;
  const int64_t fit = std::clamp<int64_t>(packs / room, 1, 4);
  const int64_t each = fit >= 4 && registers <= 24 ? 4 : fit >= 2 && registers <= 48 ? 2 : 1;
  return {packs >= room / 4 ? 256 : 128, each};
}

}  // namespace

std::vector<Knob> CudaPointwiseKnobs(const CudaText& text, const Stage&, const Pointwise& work) {
  const int64_t width = CudaPackWidth(text, work), packs = Points(work.loops) / width;
  std::vector<ExprPtr> exprs;
  for (const Store& store : work.stores) exprs.insert(exprs.end(), {store.value, store.guard, store.offset});
  const auto loads = static_cast<int64_t>(LoadsOf(exprs).size());
  const CudaPointwiseShape best = ShapeOf(text, packs, loads * width);
  Knob each{"EACH", {best.each}, true, "packs of a thread"},
      threads{"THREADS", {best.threads}, true, "threads of a block"};
  for (const int64_t value : {1, 2, 4, 8}) {
    if (value != best.each && value * loads * width <= 64) each.values.push_back(value);
  }
  for (const int64_t value : {128, 256, 512}) {
    if (value != best.threads) threads.values.push_back(value);
  }
  return {each, threads};
}

void WriteCudaPointwise(CudaText& text, const Stage& stage, const Pointwise& whole) {
  Pointwise work = whole;
  const int64_t width = CudaPackWidth(text, work);
  if (width > 1) {
    const Loop last = work.loops.back();
    for (Store& store : work.stores) {
      for (ExprPtr* expr : {&store.offset, &store.value, &store.guard})
        *expr = InPacks(*expr, last, width, kNeighbour);
    }
    work.loops.back().extent /= width;
  }
  const int64_t packs = Points(work.loops);
  const bool is_wide = packs >= int64_t{1} << 31;
  CudaKernel kernel(text, stage);
  std::vector<ExprPtr> exprs;
  for (const Store& store : work.stores) exprs.insert(exprs.end(), {store.value, store.guard, store.offset});
  const std::vector<CudaLoad> found = LoadsOf(exprs);
  CudaLoads loads(kernel, found, kNeighbour, width, "[u]", "[kEach]");
  const CudaPointwiseShape shape = ShapeOf(text, packs, static_cast<int64_t>(found.size()) * width);
  const std::string threads_text = text.KnobText("THREADS", shape.threads),
                    each_text = text.KnobText("EACH", shape.each);

  const std::string number = is_wide ? "unsigned long" : "unsigned";
  const std::string each_head = fmt::format(
      "#pragma unroll\nfor (int u = 0; u < kEach; ++u) {{\nconst {0} i = first + u * kThreads;\nif (i < ({0})({1})) {{\n",
      number, kernel.Number(packs));
  std::string body = fmt::format(
      "constexpr int kThreads = {}, kEach = {};\nconst {} first = blockIdx.x * ({})(kThreads * kEach) + threadIdx.x;\n",
      threads_text, each_text, number, number);
  if (loads.size() > 0) {
    CudaPrinter printer(kernel);
    body += loads.Declarations() + each_head + DecodeLoops(printer, work.loops, "i", is_wide);
    body += loads.Statements(printer, true) + "}\n}\n";
  }
  CudaPrinter printer(kernel);
  body += each_head + DecodeLoops(printer, work.loops, "i", is_wide);
  body += NeighbourLoop(printer, work.stores, kNeighbour, width, true,
                        [&](CudaPrinter& inside) { loads.Bind(inside, "w"); });
  body += "}\n}\n";
  kernel.Launch("Pointwise", body, fmt::format("ceil_div({}L, {} * {})", packs, threads_text, each_text),
                threads_text, threads_text);
}

}  // namespace kevin::search
