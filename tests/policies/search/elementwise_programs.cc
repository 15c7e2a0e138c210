// Programs by hand: pointwise arithmetic and views.

#include "tests/policies/search/program_builder.h"

namespace kevin::test {

using namespace search;

void AddPointwise(std::vector<ProgramCase>& cases) {
  const std::vector<std::string> unary = {"neg",  "abs",  "exp",  "exp2",  "expm1", "sigmoid", "tanh",
                                          "erf",  "sin",  "cos",  "floor", "ceil",  "round",   "trunc",
                                          "sign", "atan", "sinh", "cosh",  "asin",  "acos",    "tan"};
  for (const int64_t count : {1, 37, 1061}) {
    ProgramBuilder b;
    const Loop i = b.NewLoop(count), j = b.NewLoop(3);
    const int x = b.Input(count * 3);
    std::vector<Store> stores;
    int number = 0;
    for (const std::string& op : unary) {
      if (count != 37 && ++number > 3) break;
      const bool is_small =
          op == "sinh" || op == "cosh" || op == "asin" || op == "acos" || op == "tan" || op == "exp";
      const ExprPtr in = is_small ? Times(Read(x, {i, j}), Float(0.03)) : Read(x, {i, j});
      if (number > 3) continue;
      stores.push_back({b.Output(count * 3), At({i, j}), Unary(op, in), nullptr});
      if (stores.size() < 3) continue;
      break;
    }
    b.Do("unary", Pointwise{{i, j}, stores});
    cases.push_back(b.Case("pointwise of " + std::to_string(count)));
  }
  {
    ProgramBuilder b;
    const Loop i = b.NewLoop(1 << 19);  // goes around the caches
    const int x = b.Input(1 << 19), y = b.Output(1 << 19);
    b.Do("large", Pointwise{{i}, {{y, Var(i), Times(Read(x, Var(i)), Float(3)), nullptr}}});
    cases.push_back(b.Case("large"));
  }
  {
    ProgramBuilder b;
    const Loop i = b.NewLoop(77), j = b.NewLoop(77);
    const int x = b.Input(77), y = b.Input(77), z = b.Input(77);
    const auto difference = [&](const Loop& loop, int left, int right) {
      const ExprPtr value = Binary("sub", Read(left, Var(loop)), Read(right, Var(loop)));
      b.Do("difference", Pointwise{{loop}, {{b.Output(77), Var(loop), value, nullptr}}});
    };
    difference(i, x, y), difference(j, y, z), difference(i, x, z), difference(j, z, x);
    cases.push_back(b.Case("equal stages of other buffers"));
  }
  for (const std::string& op : unary) {
    ProgramBuilder b;
    const Loop i = b.NewLoop(77);
    const int x = b.Input(77), y = b.Output(77);
    const bool is_small =
        op == "sinh" || op == "cosh" || op == "asin" || op == "acos" || op == "tan" || op == "exp";
    b.Do(op,
         Pointwise{{i},
                   {{y, Var(i), Unary(op, is_small ? Times(Read(x, Var(i)), Float(0.03)) : Read(x, Var(i))),
                     nullptr}}});
    cases.push_back(b.Case(op));
  }
  for (const std::string op : {"log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal"}) {
    ProgramBuilder b;
    const Loop i = b.NewLoop(77);
    const int x = b.Input(77), y = b.Output(77);
    b.Do(op,
         Pointwise{{i}, {{y, Var(i), Unary(op, Plus(Unary("abs", Read(x, Var(i))), Float(0.01))), nullptr}}});
    cases.push_back(b.Case(op));
  }
  for (const std::string op : {"sub", "div_float", "minimum", "maximum", "pow", "fmod", "atan2"}) {
    ProgramBuilder b;
    const Loop i = b.NewLoop(53), j = b.NewLoop(19);
    const int x = b.Input(53 * 19), bias = b.Input(19), y = b.Output(53 * 19);
    const ExprPtr left = op == std::string("pow") ? Unary("abs", Read(x, {i, j})) : Read(x, {i, j});
    const ExprPtr right = op == std::string("pow") ? Unary("tanh", Read(bias, {j})) : Read(bias, {j});
    b.Do(op, Pointwise{{i, j}, {{y, At({i, j}), Binary(op, left, right), nullptr}}});
    cases.push_back(b.Case(op));
  }
}

// Views: transposed, flipped, padded, strided, joined, looked up; truth values and whole numbers.
void AddViews(std::vector<ProgramCase>& cases) {
  {
    ProgramBuilder b;
    const Loop i = b.NewLoop(33), j = b.NewLoop(70);
    const int x = b.Input(33 * 70), y = b.Output(33 * 70);
    b.Do("transposed", Pointwise{{i, j}, {{y, At({i, j}), Read(x, {j, i}), nullptr}}});
    cases.push_back(b.Case("transposed"));
  }
  {
    ProgramBuilder b;
    const Loop i = b.NewLoop(7), j = b.NewLoop(45);
    const int x = b.Input(7 * 45), y = b.Output(7 * 45);
    const ExprPtr flipped = AddInt(Scaled(Var(i), 45), AddInt(Int(44), Scaled(Var(j), -1)));
    b.Do("flipped", Pointwise{{i, j}, {{y, At({i, j}), Read(x, flipped), nullptr}}});
    cases.push_back(b.Case("flipped"));
  }
  {
    ProgramBuilder b;
    const Loop i = b.NewLoop(9), j = b.NewLoop(50);
    const int x = b.Input(5 * 43), y = b.Output(9 * 50);
    const ExprPtr row = AddInt(Var(i), Int(-2)), column = AddInt(Var(j), Int(-4));
    const ExprPtr inside = And(And(Compare("less_equal", Int(0), row), Compare("less", row, Int(5))),
                               And(Compare("less_equal", Int(0), column), Compare("less", column, Int(43))));
    b.Do("padded",
         Pointwise{{i, j},
                   {{y, At({i, j}), Guard(inside, Read(x, AddInt(Scaled(row, 43), column)), Float(1.5)),
                     nullptr}}});
    cases.push_back(b.Case("padded"));
  }
  {
    ProgramBuilder b;
    const Loop i = b.NewLoop(11), j = b.NewLoop(41);
    const int x = b.Input(11 * 82), z = b.Input(11 * 20), y = b.Output(11 * 41);
    const ExprPtr second = AddInt(Var(j), Int(-21));
    const ExprPtr joined = Guard(
        Compare("less", Var(j), Int(21)), Read(x, AddInt(Scaled(Var(i), 82), Scaled(Var(j), 2))),
        Guard(Compare("less_equal", Int(0), second), Read(z, AddInt(Scaled(Var(i), 20), second)), Float(0)));
    b.Do("joined", Pointwise{{i, j}, {{y, At({i, j}), joined, nullptr}}});
    cases.push_back(b.Case("joined"));
  }
  {
    ProgramBuilder b;
    const Loop i = b.NewLoop(6), j = b.NewLoop(37);
    const int x = b.Input(kIndices * 37), index = b.Input(6, "int64"), columns = b.Input(37, "int64"),
              y = b.Output(6 * 37), z = b.Output(6 * 37);
    const ExprPtr row = Load(index, Type::kInt, Var(i)), column = Load(columns, Type::kInt, Var(j));
    b.Do("lookup", Pointwise{{i, j},
                             {{y, At({i, j}), Read(x, AddInt(Scaled(row, 37), Var(j))), nullptr},
                              {z, At({i, j}), Read(x, AddInt(Scaled(column, 37), Var(i))), nullptr}}});
    cases.push_back(b.Case("lookup"));
  }
  {
    ProgramBuilder b;
    const Loop i = b.NewLoop(5), j = b.NewLoop(39);
    const int x = b.Input(5 * 39), mask = b.Input(5 * 39, "bool"), y = b.Output(5 * 39),
              z = b.Output(5 * 39, "bool"), n = b.Output(5 * 39, "int64");
    const ExprPtr value = Read(x, {i, j});
    const ExprPtr masked = Select(Load(mask, Type::kBool, At({i, j})), value, Float(-3));
    const ExprPtr larger = Or(Compare("less", Float(0.5), value), Not(Load(mask, Type::kBool, At({i, j}))));
    b.Do("truth", Pointwise{{i, j},
                            {{y, At({i, j}), masked, nullptr},
                             {z, At({i, j}), larger, nullptr},
                             {n, At({i, j}), AddInt(Var(j), Scaled(Var(i), 3)), nullptr}}});
    cases.push_back(b.Case("truth values"));
  }
  {
    ProgramBuilder b;
    const Loop i = b.NewLoop(4), j = b.NewLoop(67);
    const int x = b.Input(4 * 23), y = b.Output(4 * 67);
    const ExprPtr source = AddInt(Scaled(Var(i), 23), DivInt(Var(j), 3));
    const ExprPtr parity = ToType(ModInt(Var(j), 3), Type::kFloat);
    b.Do("repeated",
         Pointwise{{i, j},
                   {{y, At({i, j}), Plus(Read(x, source), parity), Compare("less", Var(j), Int(60))}}});
    ProgramCase one = b.Case("repeated elements, a guarded store");
    cases.push_back(one);
  }
  for (const std::string dtype : {"float16", "bfloat16"}) {
    ProgramBuilder b;
    const Loop i = b.NewLoop(13), j = b.NewLoop(45);
    const int x = b.Input(13 * 45, dtype), y = b.Output(13 * 45, dtype), z = b.Output(13 * 45, dtype);
    b.Do("narrow", Pointwise{{i, j},
                             {{y, At({i, j}), Unary("tanh", Read(x, {i, j})), nullptr},
                              {z, At({i, j}), Read(x, AddInt(Scaled(Var(j), 13), Var(i))), nullptr}}});
    cases.push_back(b.Case(dtype));
  }
}

Program ManyStages(int count) {
  ProgramBuilder b;
  int64_t elements = 4096;
  int from = b.Input(elements);
  const int out = b.Output(count);
  for (int i = 0; i < count; ++i) {
    const Loop r = b.NewLoop(3 + i), c = b.NewLoop(29 + i % 7), all = b.NewLoop(r.extent * c.extent);
    const int to = b.Workspace(all.extent);
    const ExprPtr value = Times(Read(from, ModInt(At({r, c}), elements)), Float(1 - 0.003 * (i + 1)));
    b.Do("layer", Pointwise{{r, c}, {{to, At({r, c}), Binary("maximum", value, Float(0)), nullptr}}});
    b.Do("sum",
         Reduction{
             {}, {all}, {{"sum", Read(to, {all}), 0, 0}}, {{out, search::Int(i), Result(0), nullptr}}, {}});
    from = to;
    elements = all.extent;
  }
  return b.Case("many").program;
}

Program ManyKindsOfRows(int count) {
  ProgramBuilder b;
  constexpr int64_t kRows = 3, kLongest = 5000;
  const int in = b.Input(kRows * kLongest), out = b.Output(count * kRows);
  for (int i = 0; i < count; ++i) {
    const Loop r = b.NewLoop(kRows), c = b.NewLoop(i % 3 == 0 ? 7 : i % 3 == 1 ? 1000 : kLongest);
    ExprPtr value = Read(in, AddInt(Scaled(Var(r), kLongest), Var(c)));
    for (int bit = 1; bit <= count; bit *= 2)
      value = (i & bit) != 0 ? Plus(value, Float(0.3)) : Times(value, Float(0.7));
    b.Do("row", Reduction{{r},
                          {c},
                          {{"max", value, 0, 0}, {"sum", Binary("sub", value, Result(0)), 1, 1}},
                          {{out, AddInt(search::Int(i * kRows), Var(r)), Result(1), nullptr}},
                          {}});
  }
  constexpr int kParts = 4;
  constexpr int64_t kWide = 64;
  const int copies = b.Output(kRows * kParts * kWide);
  for (int i = 0; i < kParts; ++i) {
    const Loop r = b.NewLoop(kRows), c = b.NewLoop(kWide);
    const ExprPtr from = AddInt(AddInt(Scaled(Var(r), kLongest), Var(c)), search::Int(2 * kWide * i)),
                  to = AddInt(AddInt(Scaled(Var(r), kParts * kWide), Var(c)), search::Int(kWide * i));
    b.Do("part", Pointwise{{r, c}, {{copies, to, Read(in, from), nullptr}}});
  }
  return b.Case("kinds").program;
}

}  // namespace kevin::test
