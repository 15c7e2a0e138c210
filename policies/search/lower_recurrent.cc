// Recurrent layers and loops that the graph keeps: a Repeat over time.
//
// A layer: the products of all inputs are one contraction before the loop. A step is the product of the last hidden
// state, then the gates. Both directions are steps of one loop: their weights are put side by side first.

#include <algorithm>
#include <set>

#include "policies/search/lowering.h"

namespace kevin::search {
namespace {

enum class Cell { kTanh, kRelu, kGru, kLstm };

int GatesOf(Cell cell) { return cell == Cell::kLstm ? 4 : cell == Cell::kGru ? 3 : 1; }

struct CellState {
  ExprPtr h, c;
};

// One element of the next state. `x` and `h` give a gate's part of the product of the input and of the state.
CellState NextState(Cell cell, const std::function<ExprPtr(int)>& x, const std::function<ExprPtr(int)>& h,
                    const CellState& last) {
  const auto sum = [&](int gate) { return Binary("add", x(gate), h(gate)); };
  if (cell == Cell::kTanh) return {Unary("tanh", sum(0)), nullptr};
  if (cell == Cell::kRelu) return {Binary("maximum", sum(0), Float(0)), nullptr};
  if (cell == Cell::kGru) {
    const ExprPtr reset = Unary("sigmoid", sum(0)), update = Unary("sigmoid", sum(1));
    const ExprPtr made = Unary("tanh", Binary("add", x(2), Binary("mul", reset, h(2))));
    // (1 - update) * made + update * last.
    return {Binary("add", made, Binary("mul", update, Binary("sub", last.h, made))), nullptr};
  }
  const ExprPtr input = Unary("sigmoid", sum(0)), forget = Unary("sigmoid", sum(1)),
                output = Unary("sigmoid", sum(3));
  const ExprPtr c = Binary("add", Binary("mul", forget, last.c), Binary("mul", input, Unary("tanh", sum(2))));
  return {Binary("mul", output, Unary("tanh", c)), c};
}

// The weights of one direction of a layer; biases may be null.
struct CellWeights {
  ValuePtr input, hidden, input_bias, hidden_bias;
};

ExprPtr FloatAt(const ValuePtr& value, const Index& index) { return ToType(value->at(index), Type::kFloat); }

// Of each direction, along a new first dim; one stage writes all.
ValuePtr SideBySide(Lowering& at, const std::vector<ValuePtr>& values) {
  if (values.size() == 1) return at.Unsqueeze(values[0], 0);
  Shape shape = values[0]->shape;
  const std::vector<Loop> loops = at.NewLoops(shape);
  const Index place = Lowering::Vars(loops);
  shape.insert(shape.begin(), static_cast<int64_t>(values.size()));
  const ValuePtr both = at.NewStored("weights", values[0]->dtype, shape);
  std::vector<Store> stores;
  for (size_t i = 0; i < values.size(); ++i) {
    Index whole = place;
    whole.insert(whole.begin(), Int(static_cast<int64_t>(i)));
    stores.push_back({both->buffer, OffsetOf(whole, shape), FloatAt(values[i], place), nullptr});
  }
  at.Add("weights", Pointwise{loops, stores});
  return both;
}

// What is added to the product of the input, (directions, gates * size); null without biases. The bias of the state
// joins it, but for a GRU, whose third gate scales the product of the state.
ValuePtr BiasOf(Lowering& at, Cell cell, const std::vector<CellWeights>& directions) {
  if (!directions[0].input_bias) return nullptr;
  std::vector<ValuePtr> sums;
  for (const CellWeights& weights : directions) {
    if (cell == Cell::kGru) {
      sums.push_back(weights.input_bias);
      continue;
    }
    sums.push_back(at.Map({weights.input_bias, weights.hidden_bias}, "float32", Type::kFloat,
                          [](const std::vector<ExprPtr>& a) { return Binary("add", a[0], a[1]); }));
  }
  return SideBySide(at, sums);
}

struct LayerResult {
  ValuePtr output;          // (time, batch, directions * size)
  ValuePtr last_h, last_c;  // (directions, batch, size)
};

class Layer {
 public:
  // x: (time, batch, features); h0, c0: (directions, batch, size).
  Layer(Lowering& at, Cell cell, const ValuePtr& x, const std::vector<CellWeights>& weights)
      : at_(at),
        cell_(cell),
        gates_(GatesOf(cell)),
        directions_(static_cast<int64_t>(weights.size())),
        times_(x->shape[0]),
        batch_(x->shape[1]),
        size_(weights[0].hidden->shape[1]),
        weights_(weights),
        x_(at.Plain(x)) {
    if (weights[0].hidden->shape[0] != gates_ * size_)
      throw Unsupported("recurrent layers with projections have no stage");
  }

  LayerResult Run(const ValuePtr& h0, const ValuePtr& c0, const std::string& dtype) {
    const Shape state = {directions_, batch_, size_};
    InputProducts();
    hidden_weights_ = at_.Plain(SideBySide(at_, Each(&CellWeights::hidden)));
    if (cell_ == Cell::kGru && weights_[0].hidden_bias)
      hidden_bias_ = SideBySide(at_, Each(&CellWeights::hidden_bias));
    // With one direction the states of all steps are the output; the first is the initial state.
    slots_ = directions_ == 1 ? times_ + 1 : 2;
    h_ = States(slots_, dtype);
    if (c0) c_ = States(2, "float32");
    Begin(h0, c0);
    if (directions_ > 1) output_ = at_.NewStored("output", dtype, {times_, batch_, directions_ * size_});
    const Loop time = at_.NewLoop(times_);
    at_.AddRepeat("recurrence", time, [&] { Step(Lowering::Var(time)); });
    LayerResult result;
    result.last_h = At(h_, Int(times_ % slots_), state, dtype);
    if (c_) result.last_c = At(c_, Int(times_ % 2), state, "float32");
    const ValuePtr h = h_;
    result.output = output_ ? output_ : at_.Lazy(dtype, {times_, batch_, size_}, [h](const Index& index) {
      return h->at({AddInt(index[0], Int(1)), Int(0), index[1], index[2]});
    });
    return result;
  }

 private:
  std::vector<ValuePtr> Each(ValuePtr CellWeights::*which) const {
    std::vector<ValuePtr> values;
    for (const CellWeights& one : weights_) values.push_back(one.*which);
    return values;
  }

  // (slots, directions, batch, size).
  ValuePtr States(int64_t slots, const std::string& dtype) {
    return at_.NewStored("state", dtype, {slots, directions_, batch_, size_});
  }

  // Puts the initial states into the first places.
  void Begin(const ValuePtr& h0, const ValuePtr& c0) {
    const std::vector<Loop> loops = at_.NewLoops(h0->shape);
    const Index index = Lowering::Vars(loops);
    const ExprPtr offset = OffsetOf(index, h0->shape);
    std::vector<Store> stores = {{h_->buffer, offset, FloatAt(h0, index), nullptr}};
    if (c0) stores.push_back({c_->buffer, offset, FloatAt(c0, index), nullptr});
    at_.Add("initial state", Pointwise{loops, stores});
  }

  ValuePtr At(const ValuePtr& states, const ExprPtr& slot, const Shape& shape, const std::string& dtype) {
    return at_.Lazy(dtype, shape, [=](const Index& index) {
      return states->at({slot, index[0], index[1], index[2]});
    });
  }

  // x * weights + bias: (time, batch, directions, gates * size).
  void InputProducts() {
    const ValuePtr weights = at_.Plain(SideBySide(at_, Each(&CellWeights::input)));
    const ValuePtr bias = BiasOf(at_, cell_, weights_), x = x_;
    const Shape shape = {times_, batch_, directions_, gates_ * size_};
    Lowering::Product product;
    product.m = {times_, batch_};
    product.n = {directions_, gates_ * size_};
    product.k = {x->shape[2]};
    product.lhs = [=](const Index&, const Index& m, const Index& k) { return x->at({m[0], m[1], k[0]}); };
    product.rhs = [=](const Index&, const Index& n, const Index& k) {
      return weights->at({n[0], n[1], k[0]});
    };
    product.index = [](const Index&, const Index& m, const Index& n) {
      return Index{m[0], m[1], n[0], n[1]};
    };
    if (bias)
      product.after = [=](const ExprPtr& sum, const Index& index) {
        return Binary("add", sum, FloatAt(bias, {index[2], index[3]}));
      };
    products_ = at_.Multiply("input products", "float32", shape, product);
  }

  ValuePtr HiddenProducts(const ExprPtr& time) {
    const ValuePtr h = h_, weights = hidden_weights_;
    const ExprPtr slot = ModInt(time, slots_);
    Lowering::Product product;
    product.batch = {directions_};
    product.m = {batch_};
    product.n = {gates_ * size_};
    product.k = {size_};
    product.lhs = [=](const Index& d, const Index& m, const Index& k) {
      return h->at({slot, d[0], m[0], k[0]});
    };
    product.rhs = [=](const Index& d, const Index& n, const Index& k) {
      return weights->at({d[0], n[0], k[0]});
    };
    product.index = [](const Index& d, const Index& m, const Index& n) { return Index{d[0], m[0], n[0]}; };
    return at_.Multiply("hidden products", "float32", {directions_, batch_, gates_ * size_}, product);
  }

  void Step(const ExprPtr& time) {
    const ValuePtr products = HiddenProducts(time);
    const std::vector<Loop> loops = at_.NewLoops({directions_, batch_, size_});
    const Index place = Lowering::Vars(loops);
    const ExprPtr &d = place[0], &b = place[1], &j = place[2];
    // The second direction begins at the end.
    const ExprPtr when = Select(Compare("equal", d, Int(0)), time, AddInt(Int(times_ - 1), Scaled(time, -1)));
    const auto column = [&](int gate) { return AddInt(j, Int(gate * size_)); };
    const auto x = [&](int gate) { return products_->at({when, b, d, column(gate)}); };
    const auto h = [&](int gate) {
      const ExprPtr product = products->at({d, b, column(gate)});
      if (!hidden_bias_) return product;
      return Binary("add", product, FloatAt(hidden_bias_, {d, column(gate)}));
    };
    const ExprPtr last_h = h_->at({ModInt(time, slots_), d, b, j});
    const CellState next =
        NextState(cell_, x, h, {last_h, c_ ? c_->at({ModInt(time, 2), d, b, j}) : nullptr});
    const ExprPtr after = AddInt(time, Int(1));
    std::vector<Store> stores = {
        {h_->buffer, OffsetOf({ModInt(after, slots_), d, b, j}, h_->shape), next.h, nullptr}};
    if (c_) stores.push_back({c_->buffer, OffsetOf({ModInt(after, 2), d, b, j}, c_->shape), next.c, nullptr});
    if (output_)
      stores.push_back({output_->buffer, OffsetOf({when, b, AddInt(Scaled(d, size_), j)}, output_->shape),
                        next.h, nullptr});
    at_.Add("gates", Pointwise{loops, stores});
  }

  Lowering& at_;
  Cell cell_;
  int64_t gates_, directions_, times_, batch_, size_, slots_ = 2;
  std::vector<CellWeights> weights_;
  ValuePtr x_, products_, hidden_weights_, hidden_bias_, h_, c_, output_;
};

std::vector<CellWeights> WeightsOf(const std::vector<ValuePtr>& params, size_t first, size_t directions,
                                   bool has_biases) {
  std::vector<CellWeights> weights;
  const size_t each = has_biases ? 4 : 2;
  for (size_t d = 0; d < directions; ++d) {
    const size_t at = first + d * each;
    CellWeights one = {params.at(at), params.at(at + 1), nullptr, nullptr};
    if (has_biases) one.input_bias = params.at(at + 2), one.hidden_bias = params.at(at + 3);
    weights.push_back(one);
  }
  return weights;
}

Cell CellOf(const std::string& op) {
  return op.starts_with("lstm")       ? Cell::kLstm
         : op.starts_with("gru")      ? Cell::kGru
         : op.starts_with("rnn_relu") ? Cell::kRelu
                                      : Cell::kTanh;
}

void RecurrentLayers(Lowering& at, const GraphNode& node) {
  const Cell cell = CellOf(node.op);
  if (!at.Has(node, "input")) throw Unsupported("`" + node.op + "` of packed sequences has no stage");
  if (at.Flag(node, "train", false) && at.Number(node, "dropout", 0) > 0)
    throw Unsupported("`" + node.op + "` with dropout draws random numbers");
  const bool batch_first = at.Flag(node, "batch_first", false),
             has_biases = at.Flag(node, "has_biases", true);
  const int64_t layers = at.Integer(node, "num_layers", 1),
                directions = at.Flag(node, "bidirectional", false) ? 2 : 1;
  const std::vector<ValuePtr> params = at.Tensors(node, "params");
  const size_t each = static_cast<size_t>(directions) * (has_biases ? 4 : 2);
  if (params.size() != each * static_cast<size_t>(layers))
    throw Unsupported("recurrent layers with projections have no stage");
  const std::vector<ValuePtr> initial =
      cell == Cell::kLstm ? at.Tensors(node, "hx") : std::vector{at.Tensor(node, "hx")};
  const std::string dtype = at.ResultOf(node).dtype;
  ValuePtr x = at.Tensor(node, "input");
  if (batch_first) x = at.Permute(x, {1, 0, 2});
  std::vector<ValuePtr> last_h, last_c;
  for (int64_t i = 0; i < layers; ++i) {
    Layer layer(
        at, cell, x,
        WeightsOf(params, static_cast<size_t>(i) * each, static_cast<size_t>(directions), has_biases));
    const ValuePtr c0 =
        cell == Cell::kLstm ? at.Sliced(initial.at(1), 0, i * directions, directions) : nullptr;
    const LayerResult result = layer.Run(at.Sliced(initial[0], 0, i * directions, directions), c0, dtype);
    x = result.output;
    last_h.push_back(result.last_h);
    if (result.last_c) last_c.push_back(result.last_c);
  }
  const auto set = [&](const ValuePtr& value, size_t result) {
    if (result < node.results.size() && node.results[result] >= 0) at.Set(node, value, result);
  };
  set(batch_first ? at.Permute(x, {1, 0, 2}) : x, 0);
  set(at.Cat(last_h, 0, dtype), 1);
  if (!last_c.empty()) set(at.Cat(last_c, 0, dtype), 2);
}

void RecurrentCell(Lowering& at, const GraphNode& node) {
  const Cell cell = CellOf(node.op);
  const std::vector<ValuePtr> initial =
      cell == Cell::kLstm ? at.Tensors(node, "hx") : std::vector{at.Tensor(node, "hx")};
  const ValuePtr h0 = initial[0], x = at.Tensor(node, "input");
  const ValuePtr weight_x = at.Permute(at.Tensor(node, "w_ih"), {1, 0}),
                 weight_h = at.Permute(at.Tensor(node, "w_hh"), {1, 0});
  const auto product = [&](const ValuePtr& value, const ValuePtr& weight, const char* bias_name) {
    ValuePtr made = at.MatMul(value, weight, node.op);
    const ValuePtr bias = at.OptionalTensor(node, bias_name);
    if (!bias) return made;
    return at.Map({made, bias}, "float32", Type::kFloat,
                  [](const std::vector<ExprPtr>& a) { return Binary("add", a[0], a[1]); });
  };
  const ValuePtr from_x = product(x, weight_x, "b_ih"), from_h = product(h0, weight_h, "b_hh");
  const int64_t size = h0->shape.back();
  const auto next = [=](const Index& index, const ValuePtr& c0) {
    const auto gate = [&](const ValuePtr& value, int number) {
      Index own = index;
      own.back() = AddInt(own.back(), Int(number * size));
      return FloatAt(value, own);
    };
    return NextState(
        cell, [&](int g) { return gate(from_x, g); }, [&](int g) { return gate(from_h, g); },
        {FloatAt(h0, index), c0 ? FloatAt(c0, index) : nullptr});
  };
  const std::string dtype = at.ResultOf(node).dtype;
  if (cell != Cell::kLstm)
    return at.Set(node,
                  at.Lazy(
                      dtype, h0->shape, [=](const Index& index) { return next(index, nullptr).h; }, 30));
  // Both states in one stage.
  const ValuePtr h = at.NewStored(node.op, dtype, h0->shape), c = at.NewStored(node.op, dtype, h0->shape);
  const std::vector<Loop> loops = at.NewLoops(h0->shape);
  const Index index = Lowering::Vars(loops);
  const CellState state = next(index, initial.at(1));
  const ExprPtr offset = OffsetOf(index, h0->shape);
  at.Add(node.op,
         Pointwise{loops, {{h->buffer, offset, state.h, nullptr}, {c->buffer, offset, state.c, nullptr}}});
  if (node.results[0] >= 0) at.Set(node, h, 0);
  if (node.results.size() > 1 && node.results[1] >= 0) at.Set(node, c, 1);
}

}  // namespace

void Lowering::AddRepeat(const std::string& name, const Loop& times, const std::function<void()>& body) {
  Repeat repeat;
  repeat.times = times;
  std::vector<Stage>* outside = stages_;
  stages_ = &repeat.body;
  body();
  stages_ = outside;
  std::vector<Stage> after =
      TakeStagesAfterLoop(repeat, program_.buffers, [this](int64_t extent) { return NewLoop(extent); });
  double flops = 0;
  for (const Stage& stage : repeat.body) flops += stage.flops * static_cast<double>(times.extent);
  Add(name, std::move(repeat), flops);
  for (Stage& stage : after) {
    MergeLoops(stage);
    stages_->push_back(std::move(stage));
  }
}

bool Lowering::Recurrent(const GraphNode& node) {
  static const std::set<std::string> kLayers = {"lstm", "gru", "rnn_tanh", "rnn_relu"};
  static const std::set<std::string> kCells = {"lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"};
  if (kLayers.count(node.op)) {
    RecurrentLayers(*this, node);
  } else if (kCells.count(node.op)) {
    RecurrentCell(*this, node);
  } else {
    return false;
  }
  return true;
}

}  // namespace kevin::search
