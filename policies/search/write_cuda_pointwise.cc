// Pointwise stages: each thread computes one pack of neighbouring elements, or several; the packs of a warp lie side by
// side. Accesses have no cache hints: on an H200 the plain form of ReLU takes 3.01 ms, four packs with hints 3.30 ms.

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

// Small grids: more blocks, so that all multiprocessors work.
int64_t ThreadsOf(const CudaText& text, int64_t packs) {
  const bool is_large = packs >= int64_t{512} * text.device().multiprocessors;
  return is_large || text.sharing() == CudaSharing::kForms ? 256 : 128;
}

}  // namespace

std::vector<Knob> CudaPointwiseKnobs(const CudaText& text, const Stage&, const Pointwise& work) {
  const int64_t width = CudaPackWidth(text, work), packs = Points(work.loops) / width;
  std::vector<ExprPtr> exprs;
  for (const Store& store : work.stores) exprs.insert(exprs.end(), {store.value, store.guard, store.offset});
  const auto loads = static_cast<int64_t>(LoadsOf(exprs).size());
  const int64_t best = ThreadsOf(text, packs);
  Knob each{"EACH", {1}, true, "packs of a thread"}, threads{"THREADS", {best}, true, "threads of a block"};
  for (const int64_t value : {2, 4, 8}) {
    if (value * loads * width <= 64) each.values.push_back(value);
  }
  for (const int64_t value : {128, 256, 512}) {
    if (value != best) threads.values.push_back(value);
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
  CudaKernel kernel(text, stage);
  std::vector<ExprPtr> exprs;
  for (const Store& store : work.stores) exprs.insert(exprs.end(), {store.value, store.guard, store.offset});
  const std::vector<CudaLoad> found = LoadsOf(exprs);
  CudaLoads loads(kernel, found, kNeighbour, width, "[u]", "[kEach]");
  const std::string threads_text = text.KnobText("THREADS", ThreadsOf(text, packs)),
                    each_text = text.KnobText("EACH", 1);

  const std::string number = CudaCountType(packs);
  const std::string each_head = fmt::format(
      "#pragma unroll\nfor (int u = 0; u < kEach; ++u) {{\nconst {0} i = first + u * kThreads;\nif (i < ({0})({1})) {{\n",
      number, kernel.Number(packs));
  std::string body = fmt::format(
      "constexpr int kThreads = {}, kEach = {};\nconst {} first = blockIdx.x * ({})(kThreads * kEach) + threadIdx.x;\n",
      threads_text, each_text, number, number);
  if (loads.size() > 0) {
    CudaPrinter printer(kernel);
    body += loads.Declarations() + each_head + DecodeLoops(printer, work.loops, "i");
    body += loads.Statements(printer, false) + "}\n}\n";
  }
  CudaPrinter printer(kernel);
  body += each_head + DecodeLoops(printer, work.loops, "i");
  body += NeighbourLoop(printer, work.stores, kNeighbour, width, false,
                        [&](CudaPrinter& inside) { loads.Bind(inside, "w"); });
  body += "}\n}\n";
  kernel.Launch("Pointwise", body, fmt::format("ceil_div({}L, {} * {})", packs, threads_text, each_text),
                threads_text, threads_text);
}

}  // namespace kevin::search
