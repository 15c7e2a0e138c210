// Contractions and attention in C++ without blocks, for what the fast ways do not take.

#include <fmt/format.h>

#include "policies/search/cpp_text.h"

namespace kevin::search {

void CppSimpleContraction(const Contraction& work, CppStage& stage) {
  CppPrinter print(stage);
  std::vector<Loop> outer = work.batch;
  outer.insert(outer.end(), work.m.begin(), work.m.end());
  outer.insert(outer.end(), work.n.begin(), work.n.end());
  const int scopes = CppOpenParallel(print, stage, outer);
  const std::string sum = print.Fresh("sum");
  print.Line(fmt::format("float {} = 0;", sum));
  int inner = 0;
  for (size_t i = 0; i < work.k.size(); ++i) {
    const ExprPtr limit = i < work.k_limits.size() ? work.k_limits[i] : nullptr;
    if (!limit) {
      inner += print.OpenLoops({work.k[i]});
      continue;
    }
    const std::string v = print.Fresh("v"), bound = print.Scalar(limit);
    print.Open(fmt::format("for (long {0} = 0; {0} < {1}; ++{0})", v, bound));
    print.Bind(work.k[i].variable, v);
    ++inner;
  }
  print.Open("");
  print.Line(fmt::format("{} += {};", sum, print.Scalar(Binary("mul", work.lhs, work.rhs))));
  print.Close();
  print.CloseAll(inner);
  print.BindResult(0, sum, false);
  for (const Store& store : work.stores) print.Store(store);
  print.CloseAll(scopes);
  stage.body = print.Text();
}

}  // namespace kevin::search
