// Attention in C++: blocks of queries stream over blocks of keys; scores never leave the nearest caches.

#include <fmt/format.h>

#include <algorithm>

#include "policies/search/cpp_text.h"

namespace kevin::search {
namespace {

constexpr int64_t kCppKeyBlock = 64;

constexpr const char* kCppAttentionHelpers =
    R"(// scores[q][0..63] = sum over d of query[q][d] * keys[d][0..63], for 4 rows.
static inline void ScoreRows(const float* query, const float* keys, float* scores, long depth) {
  constexpr int kVecs = 64 / kLanes;
  constexpr int kTogether = kVecs > 4 ? 4 : kVecs;
  for (int from = 0; from < kVecs; from += kTogether) {
    Vec acc[4][kTogether] = {};
    for (long d = 0; d < depth; ++d) {
#pragma GCC unroll 4
      for (int v = 0; v < kTogether; ++v) {
        const Vec key = LoadVec(keys + d * 64 + (from + v) * kLanes);
#pragma GCC unroll 4
        for (int q = 0; q < 4; ++q) acc[q][v] += key * query[q * depth + d];
      }
    }
    for (int q = 0; q < 4; ++q) {
      for (int v = 0; v < kTogether; ++v) StoreVec(scores + q * 64 + (from + v) * kLanes, acc[q][v]);
    }
  }
}
// out[q][w] += sum over k of weights[q][k] * values[k][w], for 4 rows; `width` is a multiple of kLanes.
static inline void AddValues(const float* weights, const float* values, float* out, long keys, long width) {
  for (long w = 0; w < width; w += kLanes) {
    Vec acc[4];
    for (int q = 0; q < 4; ++q) acc[q] = LoadVec(out + q * width + w);
    for (long k = 0; k < keys; ++k) {
      const Vec value = LoadVec(values + k * width + w);
#pragma GCC unroll 4
      for (int q = 0; q < 4; ++q) acc[q] += value * weights[q * 64 + k];
    }
    for (int q = 0; q < 4; ++q) StoreVec(out + q * width + w, acc[q]);
  }
}
)";

// One loop instead of several, whatever that costs in divisions.
Loop CppOneLoop(std::vector<Loop>& loops, const std::vector<ExprPtr*>& exprs, int& next) {
  CppJoinLoops(loops, exprs, next);
  if (loops.empty()) return {next++, 1};
  if (loops.size() == 1) return loops[0];
  const Loop all{next++, CppCount(loops)};
  std::vector<int64_t> shape;
  for (const Loop& loop : loops) shape.push_back(loop.extent);
  const std::vector<ExprPtr> index = IndexOf(Variable(all.variable, all.extent), shape);
  for (ExprPtr* expr : exprs) {
    *expr = Substitute(*expr, [&](const Expr& node) -> ExprPtr {
      if (node.op != "variable") return nullptr;
      for (size_t i = 0; i < loops.size(); ++i) {
        if (loops[i].variable == node.id) return index[i];
      }
      return nullptr;
    });
  }
  return all;
}

class CppAttentionText {
 public:
  CppAttentionText(const Attention& work, CppStage& stage) : work_(work), stage_(stage), print_(stage) {
    std::vector<ExprPtr*> exprs = {&work_.query, &work_.key, &work_.score, &work_.value};
    CppAddPointers(work_.stores, exprs);
    int next = kCppFirstVariable;
    CppJoinLoops(work_.batch, exprs, next);
    queries_ = CppOneLoop(work_.queries, exprs, next);
    keys_ = CppOneLoop(work_.keys, exprs, next);
    depth_ = CppOneLoop(work_.depth, exprs, next);
    width_ = CppOneLoop(work_.width, exprs, next);
    if (work_.causal) {
      work_.score = Select(Compare("less_equal", Variable(keys_.variable, keys_.extent),
                                   Variable(queries_.variable, queries_.extent)),
                           work_.score, Float(work_.softmax ? -__builtin_inf() : 0.0));
    }
    padded_ = (width_.extent + 15) / 16 * 16;
    block_ = depth_.extent + padded_ > 1024 ? 8 : 32;
    block_ = std::min<int64_t>(block_, (queries_.extent + 3) / 4 * 4);
  }

  void Write() {
    stage_.helpers.push_back(kCppAttentionHelpers);
    std::vector<Loop> jobs = work_.batch;
    const Loop blocks{kCppFirstVariable * 2, (queries_.extent + block_ - 1) / block_};
    jobs.push_back(blocks);
    const int scopes = CppOpenParallel(print_, stage_, jobs);
    print_.Open("");
    print_.Line(fmt::format("const long first = {} * {};",
                            print_.Scalar(Variable(blocks.variable, blocks.extent)), block_));
    print_.Line(
        fmt::format("const long count = first + {0} < {1} ? {0} : {1} - first;", block_, queries_.extent));
    Buffers();
    LoadQueries();
    const std::string last = work_.causal
                                 ? fmt::format("(first + count < {0} ? first + count : {0})", keys_.extent)
                                 : std::to_string(keys_.extent);
    print_.Open(fmt::format("for (long key = 0; key < {}; key += {})", last, kCppKeyBlock));
    print_.Line(
        fmt::format("const long keys = key + {0} < {1} ? {0} : {1} - key;", kCppKeyBlock, keys_.extent));
    Pack();
    print_.Line(fmt::format(
        "for (long q = 0; q < count; q += 4) ScoreRows(query + q * {0}, packed, scores + q * 64, {0});",
        depth_.extent));
    Weights();
    print_.Line(fmt::format(
        "for (long q = 0; q < count; q += 4) AddValues(scores + q * 64, values, out + q * {0}, keys, {0});",
        padded_));
    print_.Close();
    Finish();
    print_.Close();
    print_.CloseAll(scopes);
    stage_.body = print_.Text();
  }

 private:
  void Buffers() {
    print_.Line(fmt::format("alignas(64) float query[{}] = {{}}, packed[{}], values[{}];",
                            block_ * depth_.extent, depth_.extent * kCppKeyBlock, kCppKeyBlock * padded_));
    print_.Line(fmt::format("alignas(64) float scores[{}] = {{}}, out[{}] = {{}}, top[{}], total[{}] = {{}};",
                            block_ * kCppKeyBlock, block_ * padded_, block_, block_));
    print_.Line(fmt::format("for (long q = 0; q < {}; ++q) top[q] = -__builtin_inff();", block_));
    print_.Line(fmt::format("for (long i = 0; i < {}; ++i) packed[i] = 0;", depth_.extent * kCppKeyBlock));
    print_.Line(fmt::format("for (long i = 0; i < {}; ++i) values[i] = 0;", kCppKeyBlock * padded_));
  }

  void LoadQueries() {
    print_.Open("for (long q = 0; q < count; ++q)");
    print_.Bind(queries_.variable, "(first + q)");
    CppOpenWalk(print_, depth_.variable, 1, "0", std::to_string(depth_.extent));
    print_.Line(fmt::format("part.Store(query + q * {} + {}, {});", depth_.extent, print_.Scalar0(depth_),
                            print_.Lanes(work_.query)));
    print_.Close("});");
    print_.Close();
  }

  void Pack() {
    print_.Open("for (long k = 0; k < keys; ++k)");
    print_.Bind(keys_.variable, "(key + k)");
    CppOpenWalk(print_, depth_.variable, 1, "0", std::to_string(depth_.extent));
    print_.Line(fmt::format("part.StridedStore(packed + {} * 64 + k, 64, {});", print_.Scalar0(depth_),
                            print_.Lanes(work_.key)));
    print_.Close("});");
    CppOpenWalk(print_, width_.variable, 1, "0", std::to_string(width_.extent));
    print_.Line(fmt::format("part.Store(values + k * {} + {}, {});", padded_, print_.Scalar0(width_),
                            print_.Lanes(work_.value)));
    print_.Close("});");
    print_.Close();
  }

  // Scores become weights; what was summed is scaled to the new maximum.
  void Weights() {
    print_.Open("for (long q = 0; q < count; ++q)");
    print_.Bind(queries_.variable, "(first + q)");
    print_.Line("float* const row = scores + q * 64;");
    if (work_.softmax) print_.Line("Vec high = Splat(-__builtin_inff());");
    CppOpenWalk(print_, keys_.variable, 1, "key", "key + keys");
    const std::string lane = fmt::format("({} - key)", keys_.extent == 1 ? "0" : print_.Scalar0(keys_));
    print_.Line(fmt::format("const Vec product = LoadVec(row + {});", lane));
    print_.BindResult(0, "product", true);
    const std::string score = print_.Lanes(ToType(work_.score, Type::kFloat));
    print_.Line(fmt::format("const Vec score = part.Keep({}, {});", score,
                            work_.softmax ? "-__builtin_inff()" : "0.0f"));
    print_.Line(fmt::format("StoreVec(row + {}, score);", lane));
    if (work_.softmax) print_.Line("high = NanMax(high, score);");
    print_.Close("});");
    if (work_.softmax) {
      print_.Line(
          "const float before = top[q], now = NanMax(before, Across<1>(&high, [](Vec a, Vec b) { return NanMax(a, b); }));");
      print_.Line("const float shift = now == -__builtin_inff() ? 0.0f : now, scale = Exp(before - shift);");
      print_.Line("top[q] = now;");
      print_.Line("Vec sum{};");
      print_.Open("for (long k = 0; k < keys; k += kLanes)");
      print_.Line("const Vec weight = Exp(LoadVec(row + k) - shift);");
      print_.Line("StoreVec(row + k, weight);");
      print_.Line("sum += weight;");
      print_.Close();
      print_.Line("total[q] = total[q] * scale + Across<1>(&sum, [](Vec a, Vec b) { return a + b; });");
      print_.Line(fmt::format(
          "for (long w = 0; w < {0}; w += kLanes) StoreVec(out + q * {0} + w, LoadVec(out + q * {0} + w) * scale);",
          padded_));
    }
    print_.Close();
  }

  void Finish() {
    print_.Open("for (long q = 0; q < count; ++q)");
    print_.Bind(queries_.variable, "(first + q)");
    print_.Line(!work_.softmax         ? "const float scale = 1.0f;"
                : work_.masked_is_zero ? "const float scale = total[q] == 0.0f ? 0.0f : 1.0f / total[q];"
                                       : "const float scale = 1.0f / total[q];");
    CppOpenWalk(print_, width_.variable, 1, "0", std::to_string(width_.extent));
    print_.Line(fmt::format("const Vec result = LoadVec(out + q * {} + {}) * scale;", padded_,
                            print_.Scalar0(width_)));
    print_.BindResult(1, "result", true);
    for (const Store& store : work_.stores) print_.Store(store);
    print_.Close("});");
    print_.Close();
  }

  Attention work_;
  CppStage& stage_;
  CppPrinter print_;
  Loop queries_, keys_, depth_, width_;
  int64_t padded_ = 0, block_ = 0;
};

}  // namespace

void CppAttention(const Attention& work, CppStage& stage) { CppAttentionText(work, stage).Write(); }

}  // namespace kevin::search
