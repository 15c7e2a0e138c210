// Programs by hand: contractions, attention and a recurrence.

#include "tests/policies/search/program_builder.h"

namespace kevin::test {

using namespace search;

void AddContractions(std::vector<ProgramCase>& cases) {
  struct Shape {
    int64_t batch, m, n, k;
  };
  for (const Shape& s : std::vector<Shape>{{1, 1, 1, 1},
                                           {1, 33, 47, 29},
                                           {2, 17, 130, 65},
                                           {1, 1, 67, 301},
                                           {3, 65, 1, 31},
                                           {1, 96, 64, 128},
                                           {1, 131, 257, 67}}) {
    for (const int form : {0, 1, 2, 3}) {
      ProgramBuilder b;
      const Loop g = b.NewLoop(s.batch), m = b.NewLoop(s.m), n = b.NewLoop(s.n), k = b.NewLoop(s.k);
      const int lhs = b.Input(s.batch * s.m * s.k), rhs = b.Input(s.batch * s.k * s.n), bias = b.Input(s.n),
                out = b.Output(s.batch * s.m * s.n);
      const ExprPtr left = form & 1 ? Read(lhs, {g, k, m}) : Read(lhs, {g, m, k}),
                    right = form & 2 ? Read(rhs, {g, n, k}) : Read(rhs, {g, k, n});
      const ExprPtr relu = Binary("maximum", Plus(Result(0), Read(bias, {n})), Float(0));
      b.Do("matmul", Contraction{{g}, {m}, {n}, {k}, {}, left, right, {{out, At({g, m, n}), relu, nullptr}}});
      cases.push_back(b.Case("matmul form " + std::to_string(form) + " of " + std::to_string(s.m) + "x" +
                                 std::to_string(s.n) + "x" + std::to_string(s.k),
                             static_cast<double>(s.k)));
    }
  }
  struct Conv {
    int64_t images, groups, in, out, size, kernel, stride, pad;
  };
  for (const Conv& c : std::vector<Conv>{{2, 1, 3, 5, 13, 3, 1, 1},
                                         {1, 2, 4, 6, 17, 5, 2, 2},
                                         {2, 1, 7, 33, 9, 1, 1, 0},
                                         {1, 1, 16, 18, 35, 3, 1, 1}}) {
    const int64_t o = (c.size + 2 * c.pad - c.kernel) / c.stride + 1;
    ProgramBuilder b;
    const Loop g = b.NewLoop(c.groups), m = b.NewLoop(c.out), n = b.NewLoop(c.images), i = b.NewLoop(o),
               j = b.NewLoop(o), k = b.NewLoop(c.in), di = b.NewLoop(c.kernel), dj = b.NewLoop(c.kernel);
    const int x = b.Input(c.images * c.groups * c.in * c.size * c.size),
              w = b.Input(c.groups * c.out * c.in * c.kernel * c.kernel), bias = b.Input(c.groups * c.out),
              y = b.Output(c.images * c.groups * c.out * o * o);
    const Tap row = TapOf(i, di, c.stride, c.pad, c.size), column = TapOf(j, dj, c.stride, c.pad, c.size);
    const ExprPtr channel = AddInt(Scaled(AddInt(Scaled(Var(n), c.groups), Var(g)), c.in), Var(k));
    const ExprPtr load =
        Read(x, AddInt(Scaled(AddInt(Scaled(channel, c.size), row.index), c.size), column.index));
    const ExprPtr image = AddInt(Scaled(AddInt(Scaled(Var(n), c.groups), Var(g)), c.out), Var(m));
    const ExprPtr at = AddInt(Scaled(AddInt(Scaled(image, o), Var(i)), o), Var(j));
    b.Do("conv", Contraction{{g},
                             {m},
                             {n, i, j},
                             {k, di, dj},
                             {},
                             Read(w, {g, m, k, di, dj}),
                             Guard(And(row.inside, column.inside), load, Float(0)),
                             {{y, at, Plus(Result(0), Read(bias, {g, m})), nullptr}}});
    cases.push_back(b.Case("conv " + std::to_string(c.kernel) + " by " + std::to_string(c.stride),
                           static_cast<double>(c.in * c.kernel * c.kernel)));
  }
}

void AddAttention(std::vector<ProgramCase>& cases) {
  for (const int variant : {0, 1, 2, 3}) {
    for (const int64_t length : {1, 37, 150}) {
      ProgramBuilder b;
      const Loop h = b.NewLoop(2), q = b.NewLoop(length), k = b.NewLoop(length), d = b.NewLoop(19),
                 w = b.NewLoop(21);
      const int query = b.Input(2 * length * 19), key = b.Input(2 * length * 19),
                value = b.Input(2 * length * 21), bias = b.Input(length * length),
                out = b.Output(2 * length * 21);
      const ExprPtr scaled = Times(Result(0), Float(variant & 2 ? 0.01 : 0.25));
      b.Do("attention", Attention{{h},
                                  {q},
                                  {k},
                                  {d},
                                  {w},
                                  Read(query, {h, q, d}),
                                  Read(key, {h, k, d}),
                                  variant == 3 ? scaled : Plus(scaled, Read(bias, {q, k})),
                                  Read(value, {h, k, w}),
                                  (variant & 2) == 0,
                                  (variant & 1) != 0,
                                  {{out, At({h, q, w}), Result(1), nullptr}}});
      cases.push_back(b.Case("attention " + std::to_string(variant) + " of " + std::to_string(length),
                             static_cast<double>(length)));
    }
  }
}

// Some queries have no key: their results are 0, or NaN.
void AddMaskedAttention(std::vector<ProgramCase>& cases) {
  for (const bool is_zero : {false, true}) {
    for (const int64_t length : {5, 150}) {
      ProgramBuilder b;
      const Loop q = b.NewLoop(length), k = b.NewLoop(length), d = b.NewLoop(19), w = b.NewLoop(21);
      const int query = b.Input(length * 19), key = b.Input(length * 19), value = b.Input(length * 21),
                mask = b.Input(length), out = b.Output(length * 21);
      const ExprPtr is_masked = Compare("less", Read(mask, {q}), Float(0));
      Attention work{{},
                     {q},
                     {k},
                     {d},
                     {w},
                     Read(query, {q, d}),
                     Read(key, {k, d}),
                     Select(is_masked, Float(-__builtin_inf()), Times(Result(0), Float(0.25))),
                     Read(value, {k, w}),
                     true,
                     false,
                     {{out, At({q, w}), Result(1), nullptr}}};
      work.masked_is_zero = is_zero;
      b.Do("attention", work);
      cases.push_back(b.Case(std::string("attention, ") + (is_zero ? "zero" : "NaN") + " where masked, of " +
                                 std::to_string(length),
                             static_cast<double>(length)));
    }
  }
}

// h = tanh(W h + x[t]); the last h is the output.
void AddRepeat(std::vector<ProgramCase>& cases) {
  ProgramBuilder b;
  const Loop t = b.NewLoop(5), m = b.NewLoop(19), k = b.NewLoop(19), c = b.NewLoop(19), e = b.NewLoop(19);
  const int x = b.Input(5 * 19), w = b.Input(19 * 19), y = b.Output(19), h = b.Workspace(19),
            next = b.Workspace(19);
  b.Do("start", Pointwise{{c}, {{h, Var(c), Float(0.5), nullptr}}});
  Stage product, copy;
  product.name = "step";
  product.work =
      Contraction{{},           {m},
                  {},           {k},
                  {},           Times(Read(w, {m, k}), Float(0.1)),
                  Read(h, {k}), {{next, Var(m), Unary("tanh", Plus(Result(0), Read(x, {t, m}))), nullptr}}};
  copy.name = "copy";
  copy.work = Pointwise{{e}, {{h, Var(e), Read(next, {e}), nullptr}}};
  b.Do("loop", Repeat{t, {product, copy}});
  const Loop l = b.NewLoop(19);
  b.Do("end", Pointwise{{l}, {{y, Var(l), Read(h, {l}), nullptr}}});
  cases.push_back(b.Case("recurrence", 19));
}

}  // namespace kevin::test
