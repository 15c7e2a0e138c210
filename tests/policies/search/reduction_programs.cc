// Programs by hand: reductions, windows and scans.

#include "tests/policies/search/program_builder.h"

namespace kevin::test {

using namespace search;

ProgramCase Softmax(int64_t outer, int64_t terms, int64_t inner) {
  ProgramBuilder b;
  const Loop o = b.NewLoop(outer), r = b.NewLoop(terms), i = b.NewLoop(inner);
  const int x = b.Input(outer * terms * inner), y = b.Output(outer * terms * inner);
  const ExprPtr value = Read(x, {o, r, i});
  const ExprPtr shifted = Unary("exp", Binary("sub", value, Result(0)));
  b.Do("softmax", Reduction{{o, i},
                            {r},
                            {{"max", value, 0, 0}, {"sum", shifted, 1, 1}},
                            {},
                            {{y, At({o, r, i}), Binary("div_float", shifted, Result(1)), nullptr}}});
  return b.Case(
      "softmax " + std::to_string(outer) + "x" + std::to_string(terms) + "x" + std::to_string(inner),
      static_cast<double>(terms));
}

void AddReductions(std::vector<ProgramCase>& cases) {
  struct Shape {
    int64_t outer, terms, inner;
  };
  const std::vector<Shape> shapes = {{5, 1, 1},    {3, 251, 1}, {1, 40009, 1}, {7, 16, 1},    {2, 19, 50},
                                     {3, 301, 37}, {1, 3, 1},   {4, 5, 130},   {3, 20011, 1}, {1, 5003, 8}};
  for (const Shape& s : shapes) {
    const auto text = std::to_string(s.outer) + "x" + std::to_string(s.terms) + "x" + std::to_string(s.inner);
    const auto terms = static_cast<double>(s.terms);
    cases.push_back(Softmax(s.outer, s.terms, s.inner));
    ProgramBuilder m;
    const Loop o = m.NewLoop(s.outer), r = m.NewLoop(s.terms), i = m.NewLoop(s.inner);
    const int xm = m.Input(s.outer * s.terms * s.inner), mean = m.Output(s.outer * s.inner),
              low = m.Output(s.outer * s.inner);
    const ExprPtr centred = Binary("sub", Read(xm, {o, r, i}), Times(Result(0), Float(1 / terms)));
    m.Do("moments", Reduction{{o, i},
                              {r},
                              {{"sum", Read(xm, {o, r, i}), 0, 0},
                               {"min", Read(xm, {o, r, i}), 2, 0},
                               {"sum", Times(centred, centred), 1, 1}},
                              {{mean, At({o, i}), Times(Result(1), Float(1 / terms)), nullptr},
                               {low, At({o, i}), Result(2), nullptr}},
                              {}});
    cases.push_back(m.Case("moments " + text, terms));
    ProgramBuilder a;
    const int xa = a.Input(s.outer * s.terms * s.inner), at = a.Output(s.outer * s.inner, "int64"),
              least = a.Output(s.outer * s.inner, "int64");
    a.Do("argmax", Reduction{{o, i},
                             {r},
                             {{"argmax", Read(xa, {o, r, i}), 0, 0}, {"argmin", Read(xa, {o, r, i}), 1, 0}},
                             {{at, At({o, i}), Result(0, Type::kInt), nullptr},
                              {least, At({o, i}), Result(1, Type::kInt), nullptr}},
                             {}});
    cases.push_back(a.Case("argmax " + text));
    ProgramBuilder c;
    const int xc = c.Input(s.outer * s.terms * s.inner), any = c.Output(s.outer * s.inner, "bool"),
              all = c.Output(s.outer * s.inner, "bool"), count = c.Output(s.outer * s.inner, "int64");
    const ExprPtr high = Compare("less", Float(1.9), Read(xc, {o, r, i}));
    c.Do("any", Reduction{{o, i},
                          {r},
                          {{"any", high, 0, 0}, {"all", Not(high), 1, 0}},
                          {{any, At({o, i}), Result(0, Type::kBool), nullptr},
                           {all, At({o, i}), Result(1, Type::kBool), nullptr}},
                          {}});
    c.Do("count", Reduction{{o, i},
                            {r},
                            {{"sum", ToType(high, Type::kInt), 0, 0}},
                            {{count, At({o, i}), Result(0, Type::kInt), nullptr}},
                            {}});
    cases.push_back(c.Case("truth " + text));
  }
  // The places of a row's results are loaded: a router's weights of the experts that were chosen.
  ProgramBuilder t;
  const Loop token = t.NewLoop(37), chosen = t.NewLoop(3), expert = t.NewLoop(16);
  const int weights = t.Input(37 * 3), places = t.Workspace(37 * 3, "int64"), routed = t.Output(37 * 16);
  const ExprPtr weight = Read(weights, {token, chosen});
  const ExprPtr place = Load(places, Type::kInt, At({token, chosen}));
  t.Do("places", Pointwise{{token, chosen},
                           {{places, At({token, chosen}), AddInt(Scaled(Var(chosen), 4), Int(3)), nullptr}}});
  t.Do("zeros", Pointwise{{token, expert}, {{routed, At({token, expert}), Float(0), nullptr}}});
  t.Do("routing", Reduction{{token},
                            {chosen},
                            {{"sum", weight, 0, 0}},
                            {},
                            {{routed, AddInt(Scaled(Var(token), 16), place),
                              Binary("div_float", weight, Result(0)), nullptr}}});
  cases.push_back(t.Case("places that are loaded", 3));
  // Two inner loops around an outer one: a batch norm's statistics, then its use.
  ProgramBuilder b;
  const Loop n = b.NewLoop(3), c = b.NewLoop(5), p = b.NewLoop(37);
  const int x = b.Input(3 * 5 * 37), y = b.Output(3 * 5 * 37);
  const ExprPtr value = Read(x, {n, c, p});
  const ExprPtr centred = Binary("sub", value, Times(Result(0), Float(1.0 / 111)));
  b.Do("batch norm",
       Reduction{{c},
                 {n, p},
                 {{"sum", value, 0, 0}, {"sum", Times(centred, centred), 1, 1}},
                 {},
                 {{y, At({n, c, p}),
                   Times(centred, Unary("rsqrt", Plus(Times(Result(1), Float(1.0 / 111)), Float(1e-5)))),
                   nullptr}}});
  cases.push_back(b.Case("batch norm", 111));
}

void AddWindows(std::vector<ProgramCase>& cases) {
  struct Window {
    int64_t size, kernel, stride, pad;
  };
  for (const Window& w : std::vector<Window>{{37, 3, 1, 1}, {50, 3, 2, 1}, {33, 2, 2, 0}, {9, 5, 1, 2}}) {
    const int64_t out = (w.size + 2 * w.pad - w.kernel) / w.stride + 1;
    ProgramBuilder b;
    const Loop n = b.NewLoop(3), i = b.NewLoop(out), j = b.NewLoop(out), di = b.NewLoop(w.kernel),
               dj = b.NewLoop(w.kernel);
    const int x = b.Input(3 * w.size * w.size), y = b.Output(3 * out * out), z = b.Output(3 * out * out);
    const Tap row = TapOf(i, di, w.stride, w.pad, w.size), column = TapOf(j, dj, w.stride, w.pad, w.size);
    const ExprPtr load =
        Read(x, AddInt(Scaled(Var(n), w.size * w.size), AddInt(Scaled(row.index, w.size), column.index)));
    const ExprPtr inside = And(row.inside, column.inside);
    b.Do("pool", Reduction{{n, i, j},
                           {di, dj},
                           {{"max", Guard(inside, load, Float(-__builtin_inf())), 0, 0},
                            {"sum", Guard(inside, load, Float(0)), 1, 0}},
                           {{y, At({n, i, j}), Result(0), nullptr},
                            {z, At({n, i, j}), Times(Result(1), Float(0.25)), nullptr}},
                           {}});
    cases.push_back(b.Case("pool " + std::to_string(w.kernel) + " by " + std::to_string(w.stride), 9));
  }
}

void AddScans(std::vector<ProgramCase>& cases) {
  for (const std::string op : {"sum", "product", "max", "min", "logsumexp"}) {
    for (const int variant : {0, 1, 2, 3}) {
      for (const int64_t inner : {1, 37}) {
        ProgramBuilder b;
        const Loop o = b.NewLoop(3), r = b.NewLoop(71), i = b.NewLoop(inner);
        const int x = b.Input(3 * 71 * inner), y = b.Output(3 * 71 * inner);
        const ExprPtr in = op == std::string("product")
                               ? Plus(Times(Read(x, {o, r, i}), Float(0.02)), Float(1))
                               : Read(x, {o, r, i});
        Scan scan{{o, i},
                  r,
                  op,
                  (variant & 1) != 0,
                  (variant & 2) != 0 && (op == std::string("sum") || op == std::string("product")),
                  in,
                  {{y, At({o, r, i}), Times(Result(0), Float(2)), nullptr}}};
        b.Do("scan", scan);
        cases.push_back(b.Case("scan " + std::string(op) + (variant & 1 ? " reverse" : "") +
                                   (variant & 2 ? " exclusive" : "") + " inner " + std::to_string(inner),
                               71));
      }
    }
  }
  // Whole numbers, whose sums need 64 bits; inner 300 is more than a strip of rows.
  for (const std::string op : {"sum", "product", "max", "min"}) {
    for (const bool reverse : {false, true}) {
      for (const int64_t inner : {1, 37, 300}) {
        ProgramBuilder b;
        const Loop o = b.NewLoop(3), r = b.NewLoop(19), i = b.NewLoop(inner);
        const int x = b.Input(3 * 19 * inner, "int64"), y = b.Output(3 * 19 * inner, "int64"),
                  z = b.Output(3 * 19 * inner);
        const ExprPtr in = Load(x, Type::kInt, At({o, r, i}));
        const bool is_sum = op == std::string("sum");
        const ExprPtr wide = is_sum ? Scaled(in, (int64_t{1} << 33) + 1) : AddInt(in, search::Int(1));
        const ExprPtr result = Result(0, Type::kInt);
        b.Do("scan", Scan{{o, i},
                          r,
                          op,
                          reverse,
                          reverse && is_sum,
                          wide,
                          {{y, At({o, r, i}), result, nullptr},
                           {z, At({o, r, i}), Times(ToType(result, Type::kFloat), Float(0.5)), nullptr}}});
        cases.push_back(b.Case(
            "scan of integers " + op + (reverse ? " reverse" : "") + " inner " + std::to_string(inner), 19));
      }
    }
  }
}

}  // namespace kevin::test
