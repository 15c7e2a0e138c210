#include "tests/policies/search/contraction_cases.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace kevin::test {
namespace {

using namespace search;
using Sizes = std::vector<int64_t>;

int64_t Count(const Sizes& sizes) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return count;
}

class Maker {
 public:
  Loop NewLoop(int64_t extent) { return {next_++, extent}; }
  static ExprPtr Of(const Loop& loop) { return Variable(loop.variable, loop.extent); }
  int AddBuffer(int64_t elements, bool is_output = false) {
    Buffer buffer;
    buffer.name = is_output ? "out" : "in";
    buffer.dtype = "float32";
    buffer.elements = elements;
    buffer.argument = static_cast<int>(program_.buffers.size());
    buffer.is_output = is_output;
    program_.buffers.push_back(buffer);
    return buffer.argument;
  }
  // `shape` and `index` of the result; `channel` of a bias, null for none.
  ProgramCase Finish(const std::string& name, Contraction work, const Sizes& shape,
                     const std::vector<ExprPtr>& index, const ExprPtr& channel, int64_t channels,
                     const ExprPtr& guard = nullptr) {
    ExprPtr value = Result(0);
    if (channel) {
      const ExprPtr bias = Load(AddBuffer(channels), Type::kFloat, channel);
      value = Binary("maximum", Binary("add", value, bias), Float(0));
    }
    const double terms = static_cast<double>(std::max<int64_t>(1, [&] {
      int64_t count = 1;
      for (const Loop& loop : work.k) count *= loop.extent;
      return count;
    }()));
    work.stores = {{AddBuffer(Count(shape), true), OffsetOf(index, shape), value, guard}};
    Stage stage;
    stage.name = name;
    stage.work = std::move(work);
    program_.stages.push_back(stage);
    return {name, program_, terms};
  }

 private:
  Program program_;
  int next_ = 0;
};

struct Layout {
  bool left_turned = false, right_turned = false, result_turned = false;
};

ProgramCase MatMul(const Sizes& bmnk, const Layout& layout, bool has_bias) {
  Maker make;
  const int64_t rows = bmnk[1], columns = bmnk[2], terms = bmnk[3], batches = bmnk[0];
  const Loop b = make.NewLoop(batches), m = make.NewLoop(rows), n = make.NewLoop(columns),
             k = make.NewLoop(terms);
  const ExprPtr vb = Maker::Of(b), vm = Maker::Of(m), vn = Maker::Of(n), vk = Maker::Of(k);
  Contraction work;
  work.batch = {b};
  work.m = {m};
  work.n = {n};
  work.k = {k};
  const int left = make.AddBuffer(batches * rows * terms), right = make.AddBuffer(batches * terms * columns);
  work.lhs = Load(left, Type::kFloat,
                  layout.left_turned ? OffsetOf({vb, vk, vm}, {batches, terms, rows})
                                     : OffsetOf({vb, vm, vk}, {batches, rows, terms}));
  work.rhs = Load(right, Type::kFloat,
                  layout.right_turned ? OffsetOf({vb, vn, vk}, {batches, columns, terms})
                                      : OffsetOf({vb, vk, vn}, {batches, terms, columns}));
  const std::string name =
      fmt::format("matmul {} {}{}{}", bmnk, layout.left_turned, layout.right_turned, layout.result_turned);
  const ExprPtr channel = has_bias ? vn : nullptr;
  if (layout.result_turned)
    return make.Finish(name, work, {batches, columns, rows}, {vb, vn, vm}, channel, columns);
  return make.Finish(name, work, {batches, rows, columns}, {vb, vm, vn}, channel, columns);
}

struct Form {
  Sizes in, kernel, stride, padding, dilation;
  int64_t images = 2, channels = 4, outputs = 6, groups = 1;
};

ExprPtr Within(const ExprPtr& at, int64_t size) {
  return And(Compare("less_equal", Int(0), at), Compare("less", at, Int(size)));
}

ProgramCase Convolution(const Form& form) {
  Maker make;
  const int64_t in_group = form.channels / form.groups, out_group = form.outputs / form.groups;
  const Loop g = make.NewLoop(form.groups), m = make.NewLoop(out_group), image = make.NewLoop(form.images),
             c = make.NewLoop(in_group);
  const ExprPtr out_channel = AddInt(Scaled(Maker::Of(g), out_group), Maker::Of(m));
  Contraction work;
  work.batch = {g};
  work.m = {m};
  work.n = {image};
  work.k = {c};
  Sizes in_shape = {form.images, form.channels}, weight_shape = {form.outputs, in_group},
        out_shape = {form.images, form.outputs};
  std::vector<ExprPtr> in = {Maker::Of(image), AddInt(Scaled(Maker::Of(g), in_group), Maker::Of(c))};
  std::vector<ExprPtr> weight = {out_channel, Maker::Of(c)}, out = {Maker::Of(image), out_channel};
  ExprPtr inside = Bool(true);
  for (size_t d = 0; d < form.in.size(); ++d) {
    const int64_t positions =
        (form.in[d] + 2 * form.padding[d] - form.dilation[d] * (form.kernel[d] - 1) - 1) / form.stride[d] + 1;
    const Loop y = make.NewLoop(positions), tap = make.NewLoop(form.kernel[d]);
    const ExprPtr at =
        AddInt(AddInt(Scaled(Maker::Of(y), form.stride[d]), Scaled(Maker::Of(tap), form.dilation[d])),
               Int(-form.padding[d]));
    work.n.push_back(y);
    work.k.push_back(tap);
    inside = And(inside, Within(at, form.in[d]));
    in.push_back(at);
    weight.push_back(Maker::Of(tap));
    out.push_back(Maker::Of(y));
    in_shape.push_back(form.in[d]);
    weight_shape.push_back(form.kernel[d]);
    out_shape.push_back(positions);
  }
  work.lhs = Load(make.AddBuffer(Count(weight_shape)), Type::kFloat, OffsetOf(weight, weight_shape));
  work.rhs =
      Guard(inside, Load(make.AddBuffer(Count(in_shape)), Type::kFloat, OffsetOf(in, in_shape)), Float(0));
  const std::string name = fmt::format("conv {} {} stride {} padding {} dilation {} groups {}", form.in,
                                       form.kernel, form.stride, form.padding, form.dilation, form.groups);
  return make.Finish(name, work, out_shape, out, out_channel, form.outputs);
}

// One dimension, stride 2, no padding: phases with a different number of taps each.
ProgramCase Transposed(int64_t size, int64_t kernel) {
  Maker make;
  const int64_t channels = 5, outputs = 7, out_size = (size - 1) * 2 + kernel;
  const Loop phase = make.NewLoop(2), m = make.NewLoop(outputs), v = make.NewLoop((out_size + 1) / 2),
             c = make.NewLoop(channels), t = make.NewLoop((kernel + 1) / 2);
  const ExprPtr f = Maker::Of(phase), in = AddInt(Maker::Of(v), Scaled(Maker::Of(t), -1));
  const ExprPtr tap = AddInt(f, Scaled(Maker::Of(t), 2)), out = AddInt(Scaled(Maker::Of(v), 2), f);
  Contraction work;
  work.batch = {phase};
  work.m = {m};
  work.n = {v};
  work.k = {c, t};
  work.k_limits = {nullptr, DivInt(AddInt(Scaled(f, -1), Int(kernel + 1)), 2)};
  work.lhs = Load(make.AddBuffer(channels * outputs * kernel), Type::kFloat,
                  OffsetOf({Maker::Of(c), Maker::Of(m), tap}, {channels, outputs, kernel}));
  work.rhs = Guard(
      Within(in, size),
      Load(make.AddBuffer(channels * size), Type::kFloat, OffsetOf({Maker::Of(c), in}, {channels, size})),
      Float(0));
  return make.Finish(fmt::format("transposed {} {}", size, kernel), work, {outputs, out_size},
                     {Maker::Of(m), out}, Maker::Of(m), outputs, Compare("less", out, Int(out_size)));
}

void AddMatMuls(std::vector<ProgramCase>& cases) {
  for (int layout = 0; layout < 8; ++layout) {
    const Layout one{(layout & 1) != 0, (layout & 2) != 0, (layout & 4) != 0};
    cases.push_back(MatMul({1, 37, 53, 29}, one, true));
    cases.push_back(MatMul({3, 13, 70, 131}, one, false));
  }
  for (const bool turned : {false, true}) {
    for (const Sizes& sizes : std::vector<Sizes>{{1, 1, 97, 301},
                                                 {1, 97, 1, 301},
                                                 {1, 2, 3, 5},
                                                 {1, 3, 129, 1},
                                                 {1, 30, 17, 1},
                                                 {1, 16, 16, 5000},
                                                 {40, 3, 7, 5},
                                                 {1, 9, 259, 1100}})
      cases.push_back(MatMul(sizes, {false, turned, false}, sizes[0] == 1));
  }
}

}  // namespace

std::vector<ProgramCase> EveryContraction() {
  std::vector<ProgramCase> cases;
  AddMatMuls(cases);
  const std::vector<Form> forms = {
      {{19, 23}, {3, 3}, {1, 1}, {0, 0}, {1, 1}},
      {{19, 23}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 2, 5, 7},
      {{19, 23}, {3, 5}, {2, 2}, {1, 2}, {1, 1}},
      {{37}, {3}, {3}, {0}, {4}, 1, 4, 16},
      {{37}, {5}, {2}, {3}, {2}, 1, 4, 16},
      {{7, 9, 11}, {3, 3, 3}, {1, 1, 1}, {1, 0, 1}, {1, 1, 1}, 1, 2, 9},
      {{7, 9, 11}, {3, 5, 1}, {2, 1, 3}, {1, 2, 0}, {1, 2, 1}, 1, 2, 9},
      {{17, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 2, 8, 12, 4},
      {{7, 7}, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 3, 16, 20},
      {{7, 7}, {1, 1}, {2, 2}, {0, 0}, {1, 1}, 3, 16, 20},
      {{33, 33}, {11, 11}, {4, 4}, {2, 2}, {1, 1}, 1, 3, 10},
      {{20, 40}, {3, 1}, {1, 1}, {1, 0}, {1, 1}, 1, 8, 8},
      {{40, 20}, {1, 3}, {1, 1}, {0, 1}, {1, 1}, 1, 8, 8},
      {{7, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 2, 8, 8},
      {{1, 2}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 2, 8, 8},
      {{32, 32}, {4, 4}, {4, 4}, {0, 0}, {1, 1}, 1, 3, 8},
      {{30, 30}, {3, 3}, {2, 3}, {2, 2}, {2, 2}, 1, 3, 5},
      {{22, 37}, {3, 3}, {1, 1}, {2, 2}, {1, 1}, 3, 5, 9},
      {{3, 4}, {3, 3}, {1, 1}, {0, 0}, {1, 1}, 1, 9, 1},
      {{6, 150}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1, 3, 17},
  };
  for (const Form& form : forms) cases.push_back(Convolution(form));
  for (const int64_t kernel : {1, 2, 3, 5}) cases.push_back(Transposed(19, kernel));
  cases.push_back(Transposed(100, 3));
  return cases;
}

}  // namespace kevin::test
