#include "tests/policies/search/kernel_cases.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "tests/catch.h"

namespace kevin::test {

static int64_t Count(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

// Zero-mean values, mostly around 1, some up to 30.
static Numbers Draw(int64_t count, uint64_t seed) {
  Numbers values;
  uint64_t state = seed * 0x9e3779b97f4a7c15ULL + 1;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    const double u = static_cast<double>(state >> 11) * 0x1.0p-53;
    values.push_back(static_cast<float>((2 * u - 1) * (state % 16 == 0 ? 30 : 2)));
  }
  return values;
}

static Truth Elements(const std::function<double(double)>& f) {
  return [f](const std::vector<Numbers>& inputs) {
    Numbers out;
    for (const double x : inputs[0]) out.push_back(f(x));
    return out;
  };
}

Truth Columns(int64_t outer, int64_t terms, int64_t inner,
              const std::function<Numbers(const Numbers&)>& fold) {
  return [=](const std::vector<Numbers>& inputs) {
    Numbers out(static_cast<size_t>(outer * terms * inner));
    size_t results = 0;
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t j = 0; j < inner; ++j) {
        Numbers column;
        for (int64_t r = 0; r < terms; ++r)
          column.push_back(inputs[0][static_cast<size_t>((o * terms + r) * inner + j)]);
        const Numbers folded = fold(column);
        results = folded.size();
        for (size_t r = 0; r < results; ++r) {
          out[(static_cast<size_t>(o) * results + r) * static_cast<size_t>(inner) + static_cast<size_t>(j)] =
              folded[r];
        }
      }
    }
    out.resize(static_cast<size_t>(outer * inner) * results);
    return out;
  };
}

Truth Product(int64_t batch, int64_t m, int64_t n, int64_t k, bool left_transposed, bool right_transposed) {
  return [=](const std::vector<Numbers>& inputs) {
    Numbers out;
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          double sum = 0;
          for (int64_t l = 0; l < k; ++l) {
            const int64_t left = left_transposed ? l * m + i : i * k + l,
                          right = right_transposed ? j * k + l : l * n + j;
            sum += inputs[0][static_cast<size_t>(b * m * k + left)] *
                   inputs[1][static_cast<size_t>(b * k * n + right)];
          }
          out.push_back(sum);
        }
      }
    }
    return out;
  };
}

std::string Forward(const std::string& expression) {
  return "def forward(x):\n    return " + expression + "\n";
}

static void AddElementwise(std::vector<Case>& cases) {
  const std::vector<std::pair<std::string, std::function<double(double)>>> functions = {
      {"torch.relu(x)", [](double x) { return x > 0 ? x : 0; }},
      {"torch.leaky_relu(x, 0.01)", [](double x) { return x > 0 ? x : 0.01 * x; }},
      {"torch.sigmoid(x)", [](double x) { return 1 / (1 + std::exp(-x)); }},
      {"torch.tanh(x)", [](double x) { return std::tanh(x); }},
      {"x * torch.sigmoid(x)", [](double x) { return x / (1 + std::exp(-x)); }},
      {"torch.gelu(x)", [](double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }},
      {"torch.gelu(x, approximate='tanh')",
       [](double x) { return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); }},
      {"torch.selu(x)",
       [](double x) { return 1.0507009873554805 * (x > 0 ? x : 1.6732632423543772 * std::expm1(x)); }},
      {"torch.hardsigmoid(x)", [](double x) { return std::min(std::max(x + 3, 0.0), 6.0) / 6; }},
      {"torch.softplus(x)", [](double x) { return x > 20 ? x : std::log1p(std::exp(x)); }},
      {"x / (1 + torch.abs(x))", [](double x) { return x / (1 + std::fabs(x)); }},
      {"torch.elu(x, 1.0)", [](double x) { return x > 0 ? x : std::expm1(x); }},
      {"torch.clamp(x, min=-1.0, max=1.0)", [](double x) { return std::min(std::max(x, -1.0), 1.0); }},
      {"torch.log(torch.abs(x) + 0.5)", [](double x) { return std::log(std::fabs(x) + 0.5); }},
      {"torch.log1p(torch.exp(x))", [](double x) { return std::log1p(std::exp(x)); }},
      {"torch.rsqrt(x * x + 1e-3)", [](double x) { return 1 / std::sqrt(x * x + 1e-3); }},
      {"torch.expm1(x)", [](double x) { return std::expm1(x); }}};
  for (const auto& [expression, f] : functions) {
    cases.push_back({Forward(expression), {{"x", {37, 29}}}, {37, 29}, Elements(f)});
  }
  cases.push_back(
      {Forward("torch.relu(x)"), {{"x", {1}}}, {1}, Elements([](double x) { return x > 0 ? x : 0; }), 1, 1});
  cases.push_back({Forward("torch.tanh(x)"), {{"x", {2, 64, 64}}}, {2, 64, 64}, Elements([](double x) {
                     return std::tanh(x);
                   })});
  const auto diagonal = [](int64_t n, int64_t m) {
    return [=](const std::vector<Numbers>& in) {
      Numbers out;
      for (size_t i = 0; i < static_cast<size_t>(n * m); ++i)
        out.push_back(in[0][i / static_cast<size_t>(m)] * in[1][i]);
      return out;
    };
  };
  for (const auto& [n, m] : std::vector<std::pair<int64_t, int64_t>>{{13, 37}, {16, 64}, {3, 1}}) {
    cases.push_back({"def forward(a, b):\n    return torch.unsqueeze(a, 1) * b\n",
                     {{"a", {n}}, {"b", {n, m}}},
                     {n, m},
                     diagonal(n, m)});
  }
}

static Numbers One(double value) { return {value}; }

static void AddReductions(std::vector<Case>& cases) {
  const auto sum = [](const Numbers& c) {
    double total = 0;
    for (const double x : c) total += x;
    return One(total);
  };
  const auto mean = [sum](const Numbers& c) { return One(sum(c)[0] / static_cast<double>(c.size())); };
  const auto top = [](const Numbers& c) { return One(*std::max_element(c.begin(), c.end())); };
  const auto least = [](const Numbers& c) { return One(*std::min_element(c.begin(), c.end())); };
  const auto norm = [](const Numbers& c) {
    double total = 0;
    for (const double x : c) total += x * x;
    return One(std::sqrt(total));
  };
  const auto top_at = [](const Numbers& c) {
    return One(static_cast<double>(std::max_element(c.begin(), c.end()) - c.begin()));
  };
  const auto least_at = [](const Numbers& c) {
    return One(static_cast<double>(std::min_element(c.begin(), c.end()) - c.begin()));
  };
  cases.push_back(
      {Forward("torch.sum(x, [1], True)"), {{"x", {3, 45, 67}}}, {3, 1, 67}, Columns(3, 45, 67, sum), 45});
  cases.push_back(
      {Forward("torch.mean(x, [1])"), {{"x", {2, 7, 130}}}, {2, 130}, Columns(2, 7, 130, mean), 7});
  cases.push_back({Forward("torch.amax(x, [1])"), {{"x", {3, 21, 33}}}, {3, 33}, Columns(3, 21, 33, top)});
  cases.push_back({Forward("torch.min(x, dim=1)[0]"), {{"x", {3, 21, 1}}}, {3, 1}, Columns(3, 21, 1, least)});
  cases.push_back({Forward("torch.sum(x, -1)"), {{"x", {5, 1}}}, {5}, Columns(5, 1, 1, sum), 1, 1});
  cases.push_back({Forward("torch.sum(x)"), {{"x", {11, 999}}}, {}, Columns(1, 10989, 1, sum), 10989});
  cases.push_back({Forward("torch.norm(x, 2, 1)"), {{"x", {5, 103}}}, {5}, Columns(5, 103, 1, norm), 103});
  for (const auto& [outer, terms, inner] :
       std::vector<std::array<int64_t, 3>>{{2, 19, 50}, {6, 77, 1}, {4, 1, 16}}) {
    cases.push_back({Forward("torch.argmax(x, 1)"),
                     {{"x", {outer, terms, inner}}},
                     {outer, inner},
                     Columns(outer, terms, inner, top_at),
                     1,
                     2,
                     true});
    cases.push_back({Forward("torch.argmin(x, dim=1)"),
                     {{"x", {outer, terms, inner}}},
                     {outer, inner},
                     Columns(outer, terms, inner, least_at),
                     1,
                     2,
                     true});
  }
}

Numbers SoftMax(const Numbers& c, bool log) {
  const double top = *std::max_element(c.begin(), c.end());
  double sum = 0;
  for (const double x : c) sum += std::exp(x - top);
  Numbers out;
  for (const double x : c) out.push_back(log ? x - top - std::log(sum) : std::exp(x - top) / sum);
  return out;
}

// Over all terms: mean and variance, or with `centred` false the mean square.
Numbers Normal(const Numbers& c, bool centred) {
  double mean = 0, variance = 0;
  for (const double x : c) mean += centred ? x / static_cast<double>(c.size()) : 0;
  for (const double x : c) variance += (x - mean) * (x - mean) / static_cast<double>(c.size());
  Numbers out;
  for (const double x : c) out.push_back((x - mean) / std::sqrt(variance + 1e-5));
  return out;
}

static void AddNormalisations(std::vector<Case>& cases) {
  const auto softmax = [](const Numbers& c) { return SoftMax(c, false); };
  const auto log_softmax = [](const Numbers& c) { return SoftMax(c, true); };
  const auto rms = [](const Numbers& c) { return Normal(c, false); };
  const auto centred = [](const Numbers& c) { return Normal(c, true); };
  cases.push_back(
      {Forward("torch.softmax(x, 1)"), {{"x", {7, 93}}}, {7, 93}, Columns(7, 93, 1, softmax), 93});
  cases.push_back({Forward("torch.softmax(x, dim=1)"),
                   {{"x", {1, 70001}}},
                   {1, 70001},
                   Columns(1, 70001, 1, softmax),
                   70001,
                   4});
  cases.push_back(
      {Forward("torch.softmax(x, 1)"), {{"x", {2, 5, 41}}}, {2, 5, 41}, Columns(2, 5, 41, softmax), 5});
  cases.push_back({Forward("torch.log_softmax(x, 1)"),
                   {{"x", {4, 128}}},
                   {4, 128},
                   Columns(4, 128, 1, log_softmax),
                   128});
  cases.push_back(
      {"def forward(x):\n    rms = torch.sqrt(torch.mean(torch.pow(x, 2), [1], True) + 1e-5)\n    return x / "
       "rms\n",
       {{"x", {2, 9, 5, 31}}},
       {2, 9, 5, 31},
       Columns(2, 9, 155, rms),
       9});
  cases.push_back({Forward("torch.layer_norm(x, [x.size(1), x.size(2)])"),
                   {{"x", {5, 3, 111}}},
                   {5, 3, 111},
                   Columns(5, 333, 1, centred),
                   333,
                   4});
  cases.push_back({"def forward(x, w, b):\n    return torch.layer_norm(x, [300], w, b, 1e-5)\n",
                   {{"x", {3, 300}}, {"w", {300}}, {"b", {300}}},
                   {3, 300},
                   [centred](const std::vector<Numbers>& in) {
                     Numbers out = Columns(3, 300, 1, centred)(in);
                     for (size_t i = 0; i < out.size(); ++i)
                       out[i] = out[i] * in[1][i % 300] + in[2][i % 300];
                     return out;
                   },
                   300});
}

Numbers RunningSum(const Numbers& column) {
  Numbers out;
  for (const double x : column) out.push_back(x + (out.empty() ? 0 : out.back()));
  return out;
}

static void AddScansAndProducts(std::vector<Case>& cases) {
  cases.push_back(
      {Forward("torch.cumsum(x, 1)"), {{"x", {11, 75}}}, {11, 75}, Columns(11, 75, 1, RunningSum), 75, 4});
  cases.push_back(
      {Forward("torch.cumsum(x, dim=1)"), {{"x", {3, 96}}}, {3, 96}, Columns(3, 96, 1, RunningSum), 96});
  cases.push_back(
      {Forward("torch.cumsum(x, 0)"), {{"x", {23, 35}}}, {23, 35}, Columns(1, 23, 35, RunningSum), 23});
  const auto add = [&](const std::string& expression, std::vector<int64_t> a, std::vector<int64_t> b,
                       std::vector<int64_t> out, const Truth& truth, double terms, int schedules) {
    cases.push_back({"def forward(a, b):\n    return " + expression + "\n",
                     {{"a", std::move(a)}, {"b", std::move(b)}},
                     std::move(out),
                     truth,
                     terms,
                     schedules});
  };
  add("torch.matmul(a, b)", {33, 47}, {47, 51}, {33, 51}, Product(1, 33, 51, 47, false, false), 47, 4);
  add("a @ b", {64, 300}, {300, 64}, {64, 64}, Product(1, 64, 64, 300, false, false), 300, 3);
  add("torch.matmul(torch.t(a), torch.t(b))", {29, 30}, {40, 29}, {30, 40},
      Product(1, 30, 40, 29, true, true), 29, 3);
  add("torch.mm(a, b)", {5, 5000}, {5000, 7}, {5, 7}, Product(1, 5, 7, 5000, false, false), 5000, 3);
  add("torch.bmm(a, b)", {3, 9, 17}, {3, 17, 20}, {3, 9, 20}, Product(3, 9, 20, 17, false, false), 17, 2);
  add("torch.matmul(a, b)", {2, 6, 17}, {17, 32}, {2, 6, 32}, Product(1, 12, 32, 17, false, false), 17, 2);
  add("torch.matmul(a, b)", {19, 517}, {517, 1}, {19, 1}, Product(1, 19, 1, 517, false, false), 517, 3);
  add("torch.matmul(a, b)", {1, 9001}, {9001}, {1}, Product(1, 1, 1, 9001, false, false), 9001, 3);
  add("torch.matmul(a, b)", {1, 1}, {1, 2}, {1, 2}, Product(1, 1, 2, 1, false, false), 1, 1);
}

std::vector<Case> EveryCase() {
  std::vector<Case> cases;
  AddElementwise(cases);
  AddReductions(cases);
  AddNormalisations(cases);
  AddScansAndProducts(cases);
  return cases;
}

// The largest error over what measurement allows: 8 eps sqrt(terms) times the larger of |truth| and its RMS.
static double ErrorRatio(const Numbers& truth, const float* values, double terms) {
  double squares = 0, worst = 0;
  for (const double t : truth) squares += t * t / static_cast<double>(truth.size());
  for (size_t i = 0; i < truth.size(); ++i) {
    const double allowed =
        8 * 0x1.0p-23 * std::sqrt(terms) * std::max(std::fabs(truth[i]), std::sqrt(squares));
    const double error = std::fabs(static_cast<double>(values[i]) - truth[i]);
    if (!(error <= allowed))
      worst = std::max(worst, std::isfinite(error) ? error / std::max(allowed, 1e-300) : 1e300);
  }
  return worst;
}

void Check(const Case& one, const KernelLibrary& library, size_t index) {
  constexpr int64_t kGuard = 64;
  std::vector<Numbers> numbers;
  std::vector<std::unique_ptr<float[], decltype(&std::free)>> buffers;
  std::vector<void*> tensors;
  for (const TensorShape& input : one.inputs) {
    numbers.push_back(Draw(Count(input.shape), 17 + numbers.size()));
    buffers.push_back(Allocate<float>(Count(input.shape)));
    for (size_t i = 0; i < numbers.back().size(); ++i)
      buffers.back()[i] = static_cast<float>(numbers.back()[i]);
    tensors.push_back(buffers.back().get());
  }
  const Numbers truth = one.truth(numbers);
  const auto count = static_cast<int64_t>(truth.size());
  REQUIRE(count == Count(one.output));
  if (one.index_output) {
    auto out = Allocate<long>(count);
    for (int64_t i = 0; i < count; ++i) out[i] = -1;
    tensors.push_back(out.get());
    library.Launch(index, tensors);
    for (int64_t i = 0; i < count; ++i) CHECK(out[i] == static_cast<long>(truth[static_cast<size_t>(i)]));
    return;
  }
  auto out = Allocate<float>(count + kGuard);
  for (int64_t i = 0; i < count + kGuard; ++i) out[i] = std::numeric_limits<float>::quiet_NaN();
  tensors.push_back(out.get());
  library.Launch(index, tensors);
  CHECK(ErrorRatio(truth, out.get(), one.terms) == 0);
  for (int64_t i = count; i < count + kGuard; ++i) CHECK(std::isnan(out[i]));  // nothing past the end
}

}  // namespace kevin::test
