#include "env/verdict/pattern.h"

#include <cmath>
#include <limits>

#include "env/verdict/verify.h"
#include "tests/catch.h"

namespace kevin {
namespace {

// An output of distinct values; `spoil` changes what an element holds.
struct Output {
  std::vector<int64_t> shape;
  std::vector<double> truth;
  std::vector<float> answer;
  int threads = 2;

  explicit Output(std::vector<int64_t> extents) : shape(std::move(extents)) {
    int64_t elements = 1;
    for (const int64_t extent : shape) elements *= extent;
    for (int64_t i = 0; i < elements; ++i)
      truth.push_back(std::sin(1.0 + 12.9898 * static_cast<double>(i)) + 3);
    for (const double t : truth) answer.push_back(static_cast<float>(t));
  }
  template <typename Spoil>
  std::string Spoilt(const Spoil& spoil, int64_t origin = 0, bool is_part = false) {
    for (size_t i = 0; i < answer.size(); ++i)
      answer[i] = static_cast<float>(spoil(static_cast<int64_t>(i), truth[i]));
    std::vector<float> reference(truth.begin(), truth.end());
    return DescribeIncorrect({"out", shape, 1}, answer, reference, truth, {}, 0, threads, origin, is_part);
  }
};

// `there` picks elements; they get other values without a rule.
template <typename There>
std::string Place(std::vector<int64_t> shape, const There& there, int64_t origin = 0, bool is_part = false) {
  return Output(std::move(shape))
      .Spoilt(
          [&](int64_t i, double t) { return there(i) ? std::cos(7.7 * static_cast<double>(i * i)) - 9 : t; },
          origin, is_part);
}

}  // namespace

TEST_CASE("where incorrect elements lie") {
  CHECK(Place({8, 16}, [](int64_t) { return true; }) == "all of them");
  CHECK(Place(
            {8, 16}, [](int64_t) { return true; }, 0, true) == "all of the 128 that were looked at");
  CHECK(Place({8, 16}, [](int64_t i) { return i % 16 >= 12; }) == "out[:, 12:16]");
  CHECK(Place({8, 16}, [](int64_t i) { return i / 16 == 7; }) == "out[7, :]");
  CHECK(Place({8, 16}, [](int64_t i) { return i / 16 % 2 == 1; }) == "out[1:8:2, :]");
  CHECK(Place({8, 16}, [](int64_t i) { return i % 4 == 3; }) == "out[:, 3:16:4]");
  CHECK(Place({8, 16}, [](int64_t i) { return i / 16 >= 4; }) ==
        "out[4:8, :], the share of one of 2 threads");
  CHECK(Place({2, 64, 64}, [](int64_t i) {
          return i / 4096 == 1 && i / 64 % 64 / 16 == 2 && i % 64 / 16 == 1;
        }) == "out[1, 32:48, 16:32], a tile of 16 x 16");
  CHECK(Place({8, 16}, [](int64_t i) { return i >= 100; }) ==
        "one run of the flat array, from element 100 to the end");
  CHECK(Place({8, 16}, [](int64_t i) { return i >= 20 && i < 75; }) ==
        "one run of the flat array, from element 20 to 74");
  CHECK(Place({10, 10}, [](int64_t i) { return i % 7 == 2; }) ==
        "one element in 7 of the flat array, from 2 to 93");
  CHECK(Place({100}, [](int64_t i) { return i == 3 || i == 11 || i == 40; }) ==
        "scattered between flat elements 3 and 40");
  CHECK(Place({8, 16}, [](int64_t i) { return i == 77; }).empty());
  // A part of an output: indices are those of the whole.
  CHECK(Place(
            {4, 16}, [](int64_t i) { return i / 16 >= 2 && i % 16 < 8; }, 10) ==
        "out[12:14, 0:8], a tile of 2 x 8");
}

TEST_CASE("what incorrect values have in common") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(Output({8, 16}).Spoilt([&](int64_t, double) { return nan; }) == "all of them; all are NaN");
  CHECK(Output({8, 16}).Spoilt([](int64_t i, double t) { return i % 16 < 4 ? 0 : t; }) ==
        "out[:, 0:4]; all are 0");
  CHECK(Output({8, 16}).Spoilt([](int64_t, double t) { return 2 * t; }) ==
        "all of them; each is 2 times the expected value");
  CHECK(Output({8, 16}).Spoilt([](int64_t, double t) { return t + 0.5; }) ==
        "all of them; each differs by 0.5");
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{16, 16}, {3, 8, 20}}) {
    Output output(shape);
    const std::vector<double> truth = output.truth;
    const int64_t rows = shape[shape.size() - 2], columns = shape.back();
    const std::string text = output.Spoilt([&](int64_t i, double) {
      const int64_t slice = i / (rows * columns) * rows * columns, local = i % (rows * columns);
      return truth[static_cast<size_t>(slice + local % rows * columns + local / rows)];
    });
    CHECK(text.ends_with("the last two dimensions are exchanged (transposed)"));
  }
  Output shifted({8, 16});
  const std::vector<double> truth = shifted.truth;
  const auto at = [&](int64_t i) { return truth[static_cast<size_t>(std::min<int64_t>(i, 127))]; };
  CHECK(shifted.Spoilt([&](int64_t i, double) { return at(i + 1); })
            .ends_with("each has the value that belongs one element further on"));
  CHECK(Output({8, 16}).Spoilt([&](int64_t i, double t) { return i < 112 ? at(i + 16) : t; }) ==
        "out[0:7, :]; each has the value that belongs one row further on");
}

TEST_CASE("the message on an incorrect answer: the first index and both values once; a scalar has none") {
  const std::vector<float> reference = {1, 2, 3, 4};
  const std::vector<double> truth = {1, 2, 3, 4};
  const std::vector<int64_t> shape = {2, 2}, scalar;
  std::vector<float> answer = {1, 0, 3, 0};
  CHECK(
      CheckAgainstTruth({"out", shape, 1}, answer, reference, truth, {}, 1).message ==
      "out[0, 1] = 0, expected 2; 2 of 4 elements (50 %) are off: out[:, 1]; all are 0; largest error 2 with 1.91e-06 allowed");
  answer = {7};
  CHECK(CheckAgainstTruth({"out", scalar, 1}, answer, std::span(reference).first(1),
                          std::span(truth).first(1), {}, 1)
            .message == "out = 7, expected 1; error 6 with 9.54e-07 allowed");
}

}  // namespace kevin
