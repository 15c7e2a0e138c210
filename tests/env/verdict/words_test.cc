#include "env/verdict/words.h"

#include <cstdlib>
#include <vector>

#include "tests/catch.h"

namespace kevin {
namespace {

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

struct Printed {
  double value = 0, low = 0, high = 0;
};

// The three numbers as a reader sees them.
Printed Read(const std::string& ratio_text) {
  Printed printed;
  char* end = nullptr;
  printed.value = std::strtod(ratio_text.c_str(), &end);
  printed.low = std::strtod(end + 3, &end);
  printed.high = std::strtod(end + 5, nullptr);
  return printed;
}

void CheckWords(Verdict verdict, const Ratio& ratio) {
  const std::string numbers = RatioText(ratio.value, ratio.low, ratio.high);
  const Printed seen = Read(numbers);
  const std::string words = VerdictWords(verdict, ratio, "the reference"), word = VerdictWord(verdict, ratio);
  INFO(numbers << ", " << VerdictName(verdict) << ": " << words);
  const bool contains_1 = seen.low <= 1 && 1 <= seen.high;
  for (const std::string& text : {words, word}) {
    CHECK(Has(text, "slow") == (seen.high < 1));
    CHECK(Has(text, "faster") == (seen.low > 1));
    CHECK((Has(text, "distinguishable") || Has(text, "as fast") || text == "same") == contains_1);
    CHECK(!Has(text, "ambiguous"));
  }
  if (Has(words, "as fast") || word == "same") CHECK((seen.low >= 0.98 && seen.high <= 1.02));
  const bool opposite =
      (verdict == Verdict::kFast && seen.high < 1) || (verdict == Verdict::kSlow && seen.low > 1);
  CHECK((Has(words, "opposite") && Has(word, "?")) == opposite);
  CHECK((seen.low <= seen.value && seen.value <= seen.high));
}

}  // namespace

TEST_CASE("words agree with the numbers beside them, whatever the verdict") {
  const std::vector<double> values = {0.2,    0.5,    0.775,  0.9,    0.926, 0.975,  0.979,  0.98,
                                      0.9949, 0.9951, 0.9994, 0.9996, 1.0,   1.0004, 1.0006, 1.004,
                                      1.0049, 1.0051, 1.019,  1.02,   1.021, 1.05,   1.0996, 1.11,
                                      1.5,    4.04,   5.09,   6.41,   40,    1234.5};
  int checked = 0;
  for (const Verdict verdict : {Verdict::kFast, Verdict::kSlow, Verdict::kSame, Verdict::kAmbiguous}) {
    for (const double low : values) {
      for (const double value : values) {
        for (const double high : values) {
          if (low > value || value > high) continue;
          CheckWords(verdict, {value, low, high});
          ++checked;
        }
      }
    }
  }
  CHECK(checked > 10000);
}

TEST_CASE("what was seen in practice") {
  CHECK(VerdictWords(Verdict::kSlow, {0.926, 0.775, 1.11}, "the reference") ==
        "not distinguishable from the reference");
  CHECK(VerdictWord(Verdict::kSlow, {0.975, 0.870, 1.093}) == "not distinguishable");
  CHECK(VerdictWords(Verdict::kAmbiguous, {5.09, 4.04, 6.41}, "the reference") ==
        "faster than the reference");
  CHECK(VerdictWords(Verdict::kSame, {1.001, 0.99, 1.012}, "the start kernel") ==
        "as fast as the start kernel (within 2 %)");
  CHECK(VerdictWords(Verdict::kFast, {0.9, 0.85, 0.95}, "the reference") ==
        "slower than the reference, though a first test with other pairs said the opposite");
  CHECK(RatioText(1.0042, 0.9968, 1.0117) == "1.004x (0.997x to 1.012x)");
  CHECK(RatioText(1.5, 1.47, 12.345) == "1.5x (1.47x to 12.3x)");
}

TEST_CASE("times that do not have the ratio beside them get the reason") {
  const Ratio ratio{5.09, 4.04, 6.41};
  CHECK(TimesNote(ratio, 512, 2150).find("would give 4.2x") != std::string::npos);
  CHECK(TimesNote(ratio, 422, 2150).empty());
  CHECK(TimesNote(ratio, 0, 2150).empty());
}

}  // namespace kevin
