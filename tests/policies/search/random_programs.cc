#include "tests/policies/search/random_programs.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "policies/search/lower.h"
#include "tests/policies/search/program_builder.h"

namespace kevin::test {
namespace {

using namespace search;
using Shape = std::vector<int64_t>;

constexpr int64_t kMostElements = 36;
constexpr double kMostStored = 64;  // larger values are wrapped before they are stored

int64_t CountOf(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

// An element and the largest size that it may have.
struct Element {
  ExprPtr value;
  double most = 0;
};

struct Tensor {
  int buffer = -1;
  Shape shape;
  ExprPtr base;  // the offset of its first element
  double most = 4;
  bool is_inout = false;
  Type type = Type::kFloat;
};

// Both are within bounds where the condition holds; null: everywhere.
struct Place {
  ExprPtr index, inside;
};

class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed) {}

  Program Make() {
    for (int64_t i = 2 + random_.Below(2); i-- > 0;) {
      const Shape shape = NewShape();
      tensors_.push_back({b_.Input(CountOf(shape)), shape, Int(0)});
    }
    places_ = b_.Input(kMostElements, "int64");
    if (random_.OneIn(3)) {
      const Shape shape = NewShape();
      tensors_.push_back({b_.InOut(CountOf(shape)), shape, Int(0), 4, true});
    }
    for (int64_t i = 2 + random_.Below(6); i-- > 0;) AddStep(random_.OneIn(8));
    AddOutputs();
    return b_.Case("random").program;
  }

 private:
  // --- Shapes and loops ---

  Shape NewShape() {
    static const std::vector<Shape> kShapes = {{6},    {12},      {4, 3},    {3, 4},    {2, 6}, {6, 4},
                                               {4, 6}, {2, 3, 4}, {2, 2, 3}, {3, 2, 4}, {24},   {5}};
    return kShapes[static_cast<size_t>(random_.Below(static_cast<int64_t>(kShapes.size())))];
  }
  const Tensor& AnyTensor() {
    // Mostly the latest: chains of stages.
    const auto count = static_cast<int64_t>(tensors_.size());
    const int64_t back = random_.OneIn(2) ? random_.Below(std::min<int64_t>(count, 2)) : random_.Below(count);
    return tensors_[static_cast<size_t>(count - 1 - back)];
  }
  // Mostly of a tensor that there is, so that stages can be joined.
  Shape LikelyShape() {
    Shape shape = random_.OneIn(5) ? NewShape() : AnyTensor().shape;
    if (shape.size() > 1 && random_.OneIn(6)) {
      const size_t at = static_cast<size_t>(random_.Below(static_cast<int64_t>(shape.size()) - 1));
      if (random_.OneIn(2)) {
        std::swap(shape[at], shape[at + 1]);
      } else {
        shape[at] *= shape[at + 1];
        shape.erase(shape.begin() + static_cast<long>(at) + 1);
      }
    }
    return shape;
  }
  std::vector<Loop> LoopsOver(const Shape& shape) {
    std::vector<Loop> loops;
    for (const int64_t size : shape) loops.push_back(b_.NewLoop(size));
    return loops;
  }
  static std::vector<ExprPtr> VarsOf(const std::vector<Loop>& loops) {
    std::vector<ExprPtr> vars;
    for (const Loop& loop : loops) vars.push_back(Var(loop));
    return vars;
  }

  // --- Reads ---

  // `is_bounded`: the expression shows that it is below the size.
  Place IndexWithin(int64_t size, const std::vector<Loop>& loops, bool is_bounded) {
    const Loop& loop = loops[static_cast<size_t>(random_.Below(static_cast<int64_t>(loops.size())))];
    const ExprPtr var = Var(loop);
    switch (random_.Below(6)) {
      case 0:
        return {Int(random_.Below(size)), nullptr};
      case 1: {
        const ExprPtr place = Load(places_, Type::kInt, ModInt(At(loops), kMostElements));
        return {is_bounded || size < kPlaces ? ModInt(place, size) : place, nullptr};
      }
      case 2: {  // mirrored, as far as it fits
        const ExprPtr index = AddInt(Int(std::min(size, loop.extent) - 1), Scaled(var, -1));
        return {ModInt(AddInt(index, Int(loop.extent)), size), nullptr};
      }
      case 3: {
        if (is_bounded) return {ModInt(AddInt(var, Int(1)), size), nullptr};
        const ExprPtr index = AddInt(Scaled(var, 1 + random_.Below(2)), Int(random_.Below(4) - 2));
        return {index, And(Compare("less_equal", Int(0), index), Compare("less", index, Int(size)))};
      }
      case 4:
        return {DivInt(var, (loop.extent + size - 1) / size), nullptr};
      default:
        return {ModInt(var, size), nullptr};
    }
  }

  // The offset of an element of the tensor, by the loops.
  Place PlaceIn(const Tensor& tensor, const std::vector<Loop>& loops) {
    Shape shape;
    for (const Loop& loop : loops) shape.push_back(loop.extent);
    if (CountOf(shape) == CountOf(tensor.shape) && !random_.OneIn(4)) return {At(loops), nullptr};
    std::vector<ExprPtr> index;
    ExprPtr inside;
    size_t next = 0;  // the loop that comes next in order
    for (const int64_t size : tensor.shape) {
      const size_t before = next;
      while (next < loops.size() && loops[next].extent != size) ++next;
      if (next < loops.size() && !random_.OneIn(5)) {
        index.push_back(Var(loops[next++]));
        continue;
      }
      next = before;
      const Place place = IndexWithin(size, loops, tensor.base->op != "constant");
      index.push_back(place.index);
      if (place.inside) inside = inside ? And(inside, place.inside) : place.inside;
    }
    return {OffsetOf(index, tensor.shape), inside};
  }

  Element ReadOf(const Tensor& tensor, const std::vector<Loop>& loops, double outside = 1) {
    const Place place = PlaceIn(tensor, loops);
    const ExprPtr value =
        AsFloat(Load(tensor.buffer, tensor.type, AddInt(tensor.base, place.index)), random_.Below(4));
    return {place.inside ? Guard(place.inside, value, Float(outside)) : value, tensor.most};
  }

  // Of a whole number itself, its size, or what a division by 4 gives and leaves.
  static ExprPtr AsFloat(ExprPtr value, int64_t how) {
    if (value->type == Type::kInt) {
      if (how == 1) value = Select(Compare("less", value, Int(0)), Scaled(value, -1), value);
      if (how == 2) value = ModInt(value, 4);
      if (how == 3) value = DivInt(value, 4);
    }
    return ToType(value, Type::kFloat);
  }

  Element Combined(const Element& a, const Element& b) {
    switch (random_.Below(6)) {
      case 0:
        return {Binary("sub", a.value, b.value), a.most + b.most};
      case 1:
        return {Binary("maximum", a.value, b.value), std::max(a.most, b.most)};
      case 2:
        return {Select(Compare("less", a.value, b.value), Unary("neg", b.value), a.value),
                std::max(a.most, b.most)};
      case 3:
        if (a.most * b.most <= 4096) return {Times(a.value, b.value), a.most * b.most};
        return {Binary("minimum", a.value, b.value), std::max(a.most, b.most)};
      default:
        return {Plus(a.value, b.value), a.most + b.most};
    }
  }

  // From one to three tensors.
  Element ElementAt(const std::vector<Loop>& loops) {
    Element element = ReadOf(AnyTensor(), loops);
    for (int64_t more = random_.Below(3); more-- > 0;)
      element = Combined(element, ReadOf(AnyTensor(), loops));
    if (!random_.OneIn(4)) return element;
    const ExprPtr var = ToType(
        Var(loops[static_cast<size_t>(random_.Below(static_cast<int64_t>(loops.size())))]), Type::kFloat);
    return Combined(element, {var, static_cast<double>(kMostElements)});
  }

  // value - 64 * floor(value / 64).
  static Element Wrapped(const Element& element) {
    if (element.most <= kMostStored) return element;
    const ExprPtr turns = Unary("floor", Times(element.value, Float(1 / kMostStored)));
    return {Binary("sub", element.value, Times(turns, Float(kMostStored))), kMostStored};
  }

  // --- Stores ---

  Tensor NewTensor(const Shape& shape) { return {b_.Workspace(CountOf(shape)), shape, Int(0)}; }

  // The loops in an order of their own: a transposed tensor.
  Tensor NewTensorOver(std::vector<Loop>& loops) {
    if (loops.size() > 1 && random_.OneIn(5)) std::swap(loops[0], loops[1]);
    Shape shape;
    for (const Loop& loop : loops) shape.push_back(loop.extent);
    return NewTensor(shape);
  }
  static Store StoreAt(const Tensor& tensor, const std::vector<Loop>& loops, const Element& element) {
    return {tensor.buffer, AddInt(tensor.base, At(loops)), element.value, nullptr};
  }
  // A new tensor with the element for each point of the loops.
  Store Stored(std::vector<Loop> loops, const Element& given) {
    Element element = given.value->type == Type::kFloat ? Wrapped(given) : given;
    Tensor tensor = NewTensorOver(loops);
    if (element.value->type == Type::kFloat && random_.OneIn(8))
      element.value = ToType(element.value, Type::kInt);
    tensor.most = element.most;
    tensor.type = element.value->type;
    if (tensor.type != Type::kFloat)
      tensor.buffer = b_.Workspace(CountOf(tensor.shape), tensor.type == Type::kInt ? "int64" : "bool");
    made_.push_back(tensor);
    return StoreAt(tensor, loops, element);
  }

  // --- Stages ---

  void Do(const std::string& name, decltype(Stage::work) work) {
    stages_->push_back({name, std::move(work), 0, 0});
    tensors_.insert(tensors_.end(), made_.begin(), made_.end());
    made_.clear();
  }

  void AddStep(bool is_loop) {
    if (is_loop) return AddLoop();
    switch (random_.Below(10)) {
      case 0:
        return AddParts();
      case 1:
        return AddOverwrite();
      case 2:
        return AddContraction();
      case 3:
        return AddScan();
      case 4:
      case 5:
      case 6:
        return AddReduction();
      default:
        return AddPointwise();
    }
  }

  void AddPointwise() {
    const std::vector<Loop> loops = LoopsOver(LikelyShape());
    std::vector<Store> stores = {Stored(loops, ElementAt(loops))};
    if (random_.OneIn(4)) stores.push_back(Stored(loops, ElementAt(loops)));
    Do("pointwise", Pointwise{loops, stores});
  }

  static double MostOf(const std::string& op, double most, int64_t terms) {
    if (op == "max" || op == "min") return most;
    return op == "any" ? 1 : static_cast<double>(terms) * (op == "sum" ? most : 1);
  }

  void AddReduction() {
    static const std::vector<std::string> kOps = {"sum", "sum", "max", "min", "argmax", "argmin", "any"};
    std::vector<Loop> loops = LoopsOver(LikelyShape()), outer, inner;
    for (const Loop& loop : loops) (random_.OneIn(2) ? outer : inner).push_back(loop);
    if (outer.empty()) std::swap(outer, inner);
    if (inner.empty()) inner.push_back(b_.NewLoop(2 + random_.Below(3)));
    std::vector<Loop> all = outer;
    all.insert(all.end(), inner.begin(), inner.end());
    int64_t terms = 1;
    for (const Loop& loop : inner) terms *= loop.extent;
    Reduction work{outer, inner, {}, {}, {}};
    std::vector<Element> results;
    const int64_t count = 1 + random_.Below(2);
    for (int64_t i = 0; i < count; ++i) {
      const std::string& op = kOps[static_cast<size_t>(random_.Below(static_cast<int64_t>(kOps.size())))];
      const bool follows = i > 0 && random_.OneIn(2);
      Element element = ElementAt(all);
      if (follows) element = Combined(element, results[0]);
      element = Wrapped(element);
      if (op == "any") element = {Compare("less", Float(3), element.value), 1};
      work.accumulators.push_back({op, element.value, static_cast<int>(i), follows ? 1 : 0});
      Type type = op.starts_with("arg") ? Type::kInt : op == "any" ? Type::kBool : Type::kFloat;
      if (type == Type::kFloat && random_.OneIn(4)) {
        type = Type::kInt;
        work.accumulators.back().value = ToType(element.value, type);
      }
      const ExprPtr result = Result(static_cast<int>(i), type);
      results.push_back({AsFloat(result, random_.Below(4)), MostOf(op, element.most, terms)});
      if (random_.OneIn(4)) work.outer_stores.push_back(Stored(outer, {result, results.back().most}));
    }
    Element result = results[0];
    if (count > 1) result = Combined(result, results[1]);
    const int64_t kind = random_.Below(4);  // rows, elements, or both
    if (kind < 3) {
      work.outer_stores.push_back(
          Stored(outer, random_.OneIn(3) ? Combined(result, ElementAt(outer)) : result));
    }
    if (kind > 1) work.inner_stores.push_back(Stored(all, Combined(ElementAt(all), result)));
    Do("reduction", work);
  }

  void AddContraction() {
    const std::vector<Loop> m = LoopsOver({2 + random_.Below(3)}), n = LoopsOver({2 + random_.Below(3)}),
                            k = LoopsOver({2 + random_.Below(5)});
    const Element left = ReadOf(AnyTensor(), {m[0], k[0]}, 0), right = ReadOf(AnyTensor(), {n[0], k[0]}, 0);
    const Element sum{Result(0), left.most * right.most * static_cast<double>(k[0].extent)};
    const std::vector<Loop> all = {m[0], n[0]};
    const Element result = random_.OneIn(2) ? Combined(sum, ElementAt(all)) : sum;
    Do("product", Contraction{{}, m, n, k, {nullptr}, left.value, right.value, {Stored(all, result)}});
  }

  void AddScan() {
    static const std::vector<std::string> kOps = {"sum", "max", "min"};
    std::vector<Loop> loops = LoopsOver(LikelyShape());
    const Loop along = loops.back();
    const std::vector<Loop> outer(loops.begin(), loops.end() - 1);
    const std::string& op = kOps[static_cast<size_t>(random_.Below(3))];
    const Element element = ElementAt(loops);
    const bool is_exclusive = op == "sum" && random_.OneIn(3);
    const Element result{Result(0),
                         op == "sum" ? element.most * static_cast<double>(along.extent) : element.most};
    Do("scan",
       Scan{outer, along, op, random_.OneIn(2), is_exclusive, element.value, {Stored(loops, result)}});
  }

  // A concatenation, perhaps with another stage between its parts, and with the first one under a condition.
  void AddParts() {
    const Shape shape = LikelyShape();
    const size_t dim = static_cast<size_t>(random_.Below(static_cast<int64_t>(shape.size())));
    if (shape[dim] < 2) return AddPointwise();
    if (shape[dim] % 2 == 0 && random_.OneIn(2)) return AddHalves(shape, dim);
    Tensor whole = NewTensor(shape);
    whole.most = 0;
    const int64_t first = 1 + random_.Below(shape[dim] - 1);
    const bool is_filled = random_.OneIn(3);  // and then overwritten in part
    for (const bool is_first : {true, false}) {
      Shape part = shape;
      part[dim] = is_first ? first : shape[dim] - first;
      if (is_first && is_filled) part[dim] = shape[dim];
      const std::vector<Loop> loops = LoopsOver(part);
      std::vector<ExprPtr> index = VarsOf(loops);
      if (!is_first) index[dim] = AddInt(index[dim], Int(first));
      const Element element = Wrapped(ElementAt(loops));
      whole.most = std::max(whole.most, element.most);
      Do("part", Pointwise{loops, {{whole.buffer, OffsetOf(index, shape), element.value, nullptr}}});
      if (is_first && random_.OneIn(2)) AddPointwise();
    }
    tensors_.push_back(whole);
  }

  // Both halves by one stage.
  void AddHalves(const Shape& shape, size_t dim) {
    Shape half = shape;
    half[dim] /= 2;
    const std::vector<Loop> loops = LoopsOver(half);
    std::vector<ExprPtr> index = VarsOf(loops);
    Tensor whole = NewTensor(shape);
    std::vector<Store> stores;
    whole.most = 0;
    for (const int64_t start : {int64_t{0}, half[dim]}) {
      index[dim] = AddInt(Var(loops[dim]), Int(start));
      const Element element = Wrapped(ElementAt(loops));
      whole.most = std::max(whole.most, element.most);
      stores.push_back({whole.buffer, OffsetOf(index, shape), element.value, nullptr});
    }
    made_.push_back(whole);
    Do("halves", Pointwise{loops, stores});
  }

  // Elements of a tensor that was written before, or of an input-output: all, a part, or those of a condition.
  void AddOverwrite() {
    const Tensor tensor = AnyTensor();
    if (tensor.type != Type::kFloat || (!tensor.is_inout && !IsWritten(tensor.buffer))) return AddPointwise();
    const std::vector<Loop> loops = LoopsOver(tensor.shape);
    std::vector<Tensor> others;
    std::swap(others, tensors_);
    for (const Tensor& other : others) {
      if (other.buffer != tensor.buffer) tensors_.push_back(other);
    }
    Element element = Wrapped(ElementAt(loops));
    if (tensor.is_inout && random_.OneIn(2))
      element = Wrapped(Combined(element, {Read(tensor.buffer, loops), tensor.most}));
    ExprPtr guard;
    if (random_.OneIn(2)) guard = Compare("less", Int(random_.Below(tensor.shape[0])), Var(loops[0]));
    tensors_ = others;
    for (Tensor& one : tensors_) {
      if (one.buffer == tensor.buffer) one.most = std::max(one.most, element.most);
    }
    Store store = StoreAt(tensor, loops, element);
    store.guard = guard;
    Do("overwrite", Pointwise{loops, {store}});
  }
  bool IsWritten(int buffer) const {
    return std::any_of(stages_->begin(), stages_->end(), [&](const Stage& stage) {
      const std::vector<int> written = BuffersWritten(stage);
      return std::find(written.begin(), written.end(), buffer) != written.end();
    });
  }

  // --- Loops ---

  // A value with two places that are used in turn, and one with a place for each iteration.
  void AddLoop() {
    const Shape shape = NewShape();
    const int64_t count = CountOf(shape);
    const Loop times = b_.NewLoop(2 + random_.Below(4));
    const int carried = b_.Workspace(2 * count), stacked = b_.Workspace(times.extent * count);
    const std::vector<Loop> first = LoopsOver(shape);
    Do("carried", Pointwise{first, {{carried, At(first), Wrapped(ElementAt(first)).value, nullptr}}});
    Shape all = shape;
    all.insert(all.begin(), times.extent);
    const Tensor of_all{stacked, all, Int(0), kMostStored};
    const bool is_read_inside = random_.OneIn(2);
    if (is_read_inside) {
      const std::vector<Loop> places = LoopsOver(all);
      Do("stacked", Pointwise{places, {StoreAt(of_all, places, Wrapped(ElementAt(places)))}});
    }
    const auto slot = [&](const ExprPtr& time) {
      return Tensor{carried, shape, Scaled(ModInt(time, 2), count), kMostStored};
    };
    Repeat repeat{times, {}};
    std::vector<Stage>* const outside = std::exchange(stages_, &repeat.body);
    const size_t known = tensors_.size();
    tensors_.push_back(slot(Var(times)));
    for (int64_t i = random_.Below(4); i-- > 0;) AddStep(false);
    const std::vector<Loop> loops = LoopsOver(shape);
    const Element next = Wrapped(Combined(ElementAt(loops), ReadOf(slot(Var(times)), loops)));
    std::vector<Store> stores = {StoreAt(slot(AddInt(Var(times), Int(1))), loops, next)};
    const Tensor here{stacked, shape, Scaled(Var(times), count), kMostStored};
    if (random_.OneIn(2)) stores.push_back(StoreAt(here, loops, next));
    Do("next", Pointwise{loops, stores});
    std::vector<Tensor> after = {slot(Int(times.extent))};
    if (stores.size() > 1) after.push_back(of_all);
    if (stores.size() > 1 && random_.OneIn(2)) {
      const Tensor& from = is_read_inside ? of_all : here;
      const std::vector<Loop> places = LoopsOver(from.shape);
      const Element element = Wrapped(Combined(ReadOf(from, places), ElementAt(places)));
      after.push_back(NewTensor(from.shape));
      after.back().most = element.most;
      Do("kept", Pointwise{places, {StoreAt(after.back(), places, element)}});
    }
    stages_ = outside;
    tensors_.resize(known);
    Do("loop", std::move(repeat));
    tensors_.insert(tensors_.end(), after.begin(), after.end());
  }

  void AddOutputs() {
    for (int64_t i = 1 + random_.Below(3); i-- > 0;) {
      const Tensor& tensor = AnyTensor();
      const std::vector<Loop> loops = LoopsOver(tensor.shape);
      const ExprPtr element = Load(tensor.buffer, tensor.type, AddInt(tensor.base, At(loops)));
      const ExprPtr same = ToType(element, Type::kFloat);
      const ExprPtr value = random_.OneIn(2) ? same : ElementAt(loops).value;
      const int out = b_.Output(CountOf(tensor.shape));
      Do("output", Pointwise{loops, {{out, At(loops), value, nullptr}}});
      if (!random_.OneIn(4)) continue;
      const std::vector<Loop> part = LoopsOver({tensor.shape[0]});
      Do("overwrite", Pointwise{part, {{out, Var(part[0]), Wrapped(ElementAt(part)).value, nullptr}}});
    }
  }

  Random random_;
  ProgramBuilder b_;
  std::vector<Stage>* stages_ = &b_.Stages();
  std::vector<Tensor> tensors_, made_;  // those that may be read; those of the stage that is made
  int places_ = -1;
};

}  // namespace

Program RandomProgram(uint64_t seed) { return Generator(seed).Make(); }

Memory WholeMemory(const Program& program, uint64_t seed) {
  Random random(seed);
  Memory memory;
  for (const Buffer& buffer : program.buffers) {
    const bool is_whole = buffer.dtype == "int64";
    std::vector<double> values;
    for (int64_t i = 0; i < buffer.elements; ++i)
      values.push_back(static_cast<double>(is_whole ? random.Below(kPlaces) : random.Below(9) - 4));
    memory.push_back(std::move(values));
  }
  return memory;
}

std::vector<uint64_t> SeedsOr(uint64_t count) {
  uint64_t first = 1;
  if (const char* given = std::getenv("KEVIN_SEEDS")) {
    char* end = nullptr;
    first = std::strtoull(given, &end, 10);
    count = *end == ':' ? std::strtoull(end + 1, nullptr, 10) : 1;
  }
  std::vector<uint64_t> seeds(count);
  std::iota(seeds.begin(), seeds.end(), first);
  return seeds;
}

std::vector<ProgramCase> RandomCases(const std::vector<uint64_t>& seeds) {
  std::vector<ProgramCase> cases;
  for (const uint64_t seed : seeds) {
    ProgramCase one{"seed " + std::to_string(seed), RandomProgram(seed)};
    Fuse(one.program);
    PlaceWorkspaces(one.program);
    one.is_whole = true;
    cases.push_back(std::move(one));
  }
  return cases;
}

}  // namespace kevin::test
