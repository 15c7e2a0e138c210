#include "env/verdict/pattern.h"

#include <cmath>
#include <limits>
#include <span>

#include "env/verdict/verify.h"
#include "tests/catch.h"

namespace kevin {
namespace {

// An output of distinct values; `spoil` changes what an element holds.
struct Output {
  std::vector<int64_t> shape;
  std::vector<double> truth;
  std::vector<float> answer;
  int threads = 2;  // of the candidate

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
    return DescribeIncorrect({"out", shape, 1}, answer, reference, truth, {}, 0, 2, origin, is_part, threads);
  }
};

// `there` picks elements; they get other values without a rule.
template <typename There>
std::string Place(std::vector<int64_t> shape, const There& there, int64_t origin = 0, bool is_part = false,
                  int threads = 2) {
  Output output(std::move(shape));
  output.threads = threads;
  return output.Spoilt(
      [&](int64_t i, double t) { return there(i) ? std::cos(7.7 * static_cast<double>(i * i)) - 9 : t; },
      origin, is_part);
}

// Whether element i is one of the few that are correct by chance, here one in 20 without a rule.
bool IsSpared(int64_t i) { return i * 2654435761 % 4294967296 < 4294967296 / 20; }

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

TEST_CASE("a place counts where nearly all of it is incorrect") {
  CHECK(Place({64, 128}, [](int64_t i) { return !IsSpared(i); }) == "nearly all of them");
  CHECK(Place(
            {64, 128}, [](int64_t i) { return !IsSpared(i); }, 0, true) ==
        "nearly all of the 8192 that were looked at");
  CHECK(Place({64, 128}, [](int64_t i) { return i % 128 >= 96 && !IsSpared(i); }) ==
        "nearly all of out[:, 96:128]");
  CHECK(Place({64, 128}, [](int64_t i) { return i / 128 / 16 == 2 && i % 128 / 16 == 1 && !IsSpared(i); }) ==
        "nearly all of out[32:48, 16:32], a tile of 16 x 16");
  CHECK(Place({64, 128}, [](int64_t i) { return i % 4 == 3 && !IsSpared(i); }) ==
        "nearly all of out[:, 3:128:4]");
  CHECK(Place({6, 1000}, [](int64_t i) { return i >= 1500 && i < 3500 && !IsSpared(i); }) ==
        "nearly all of one run of the flat array, from element 1500 to 3499");
  CHECK(Place({1003}, [](int64_t i) { return i % 7 == 2 && !IsSpared(i); }) == "nearly all of out[2:997:7]");
  // Half of a place is not nearly all of it.
  CHECK(Place({64, 128}, [](int64_t i) {
          return i % 128 >= 96 && i * 2654435761 % 4294967296 < 2147483648;
        }).starts_with("scattered between flat elements "));
}

TEST_CASE("indices without a rule are named where they are few") {
  CHECK(Place({8, 16}, [](int64_t i) { return i / 16 == 1 || i / 16 == 2 || i / 16 == 6; }) ==
        "out[[1, 2, 6], :]");
  CHECK(Place(
            {32, 16}, [](int64_t i) { return i % 16 >= 8 && (i / 16 == 3 || i / 16 == 4 || i / 16 == 9); },
            100) == "out[[103, 104, 109], 8:16]");
  // Seven are not few.
  CHECK(Place({64, 16}, [](int64_t i) { return (i / 16 * 37) % 64 < 7; }).starts_with("scattered"));
}

TEST_CASE("a block is seen beside a few incorrect elements elsewhere") {
  CHECK(Place({64, 128}, [](int64_t i) {
          return (i / 128 / 16 == 2 && i % 128 / 16 == 1) || i == 5 || i == 8000;
        }) == "out[32:48, 16:32], a tile of 16 x 16, and 2 elsewhere");
  CHECK(Place({64, 128}, [](int64_t i) { return i / 128 >= 32 || i == 77; }) ==
        "out[32:64, :], the share of one of 2 threads, and 1 elsewhere");
}

TEST_CASE("the share of one thread, as a static schedule divides the iterations") {
  const auto share = [](std::vector<int64_t> shape, int64_t first, int64_t end, int threads) {
    return Place(
        std::move(shape), [=](int64_t i) { return i >= first && i < end; }, 0, false, threads);
  };
  const std::string of_four = ", the share of one of 4 threads";
  CHECK(share({1000}, 250, 500, 4) == "out[250:500]" + of_four);
  CHECK(share({1002}, 251, 502, 4) == "out[251:502]" + of_four);  // the longer parts come first
  CHECK(share({1002}, 502, 752, 4) == "out[502:752]" + of_four);
  CHECK(share({1000}, 252, 500, 4) == "out[252:500]" + of_four);  // off by less than 2 %
  CHECK(share({16, 16}, 64, 128, 4) == "out[4:8, :]" + of_four);
  CHECK(share({1, 1000}, 250, 500, 4) == "out[:, 250:500]" + of_four);
  CHECK(share({10, 100}, 250, 500, 4) == "one run of the flat array, from element 250 to 499" + of_four);
  CHECK(share({1000}, 300, 500, 4) == "out[300:500]");
  CHECK(share({1000}, 250, 500, 0) == "out[250:500]");  // of a GPU
  CHECK(share({1000}, 250, 500, 1) == "out[250:500]");
  CHECK(share({16, 16}, 64, 120, 4).find("share") == std::string::npos);
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
  // Nearly all of them: the rest has values without a rule.
  const auto odd = [](int64_t i) { return i % 32 == 7; };
  CHECK(Output({64, 64}).Spoilt([&](int64_t i, double) {
    return odd(i) ? std::cos(7.7 * static_cast<double>(i)) - 9 : 0;
  }) == "all of them; nearly all are 0");
  CHECK(Output({64, 64}).Spoilt([&](int64_t i, double) {
    return odd(i) ? std::cos(7.7 * static_cast<double>(i)) - 9 : nan;
  }) == "all of them; nearly all are NaN");
  CHECK(Output({64, 64}).Spoilt([&](int64_t i, double) { return i % 2 == 0 ? 0 : -1.0; }) == "all of them");
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

TEST_CASE("indices that do not point at an extreme value: the first, how many, and their pattern") {
  // 4 rows of 5 columns; the maximum is in column 2 of each row.
  std::vector<float> values(20);
  for (size_t i = 0; i < values.size(); ++i) values[i] = i % 5 == 2 ? 9 : static_cast<float>(i % 5);
  const std::vector<int64_t> shape = {4, 5};
  const auto message = [&](std::vector<int64_t> answer) {
    return CheckExtremeIndex("out", answer, values, shape, 1, true).message;
  };
  CHECK(message({2, 2, 2, 2}).empty());
  CHECK(message({2, 4, 2, 2}) ==
        "out[1] = 4 points at 4, the maximum along dimension 1 is 9; 1 of 4 elements (25 %) is off");
  CHECK(
      message({2, 2, 3, 3}) ==
      "out[2] = 3 points at 3, the maximum along dimension 1 is 9; 2 of 4 elements (50 %) are off: out[2:4]; all are 3");
  CHECK(message({7, 2, 2, 2}) ==
        "out[0] = 7 is out of range, the maximum along dimension 1 is 9; 1 of 4 elements (25 %) is off");
  const std::vector<int64_t> row = {5};
  const std::vector<int64_t> one = {1};
  CHECK(CheckExtremeIndex("out", one, std::span(values).first(5), row, 0, true).message ==
        "out = 1 points at 1, the maximum along dimension 0 is 9");  // a scalar has no index and no pattern
}

}  // namespace kevin
