#include "env/process/poison.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <set>
#include <vector>

#include "env/problem/precision.h"
#include "env/process/generator.h"
#include "tests/catch.h"

namespace kevin {
namespace {

constexpr int64_t kWords = 100'000;

std::vector<uint32_t> Filled(const Poison& poison) {
  std::vector<uint32_t> words(kWords);
  FillPoison(poison, words.data(), kWords * 4, 2);
  return words;
}

std::vector<float> InAllTypes(uint32_t word) {
  std::vector<float> values{std::bit_cast<float>(word)};
  for (const uint32_t half : {word & 0xffffU, word >> 16}) {
    values.push_back(ToFloat(Float16{static_cast<uint16_t>(half)}));
    values.push_back(ToFloat(BFloat16{static_cast<uint16_t>(half)}));
  }
  return values;
}

}  // namespace

TEST_CASE("poison is a NaN in every type, ordinary poison a moderate number") {
  size_t numbers = 0, large = 0, unknown = 0;
  for (const uint32_t word : Filled({SecretRandom()()})) {
    for (const float value : InAllTypes(word)) numbers += !std::isnan(value);
    unknown += !IsPoisonWord(word);
  }
  for (const uint32_t word : Filled({SecretRandom()(), true})) {
    for (const float value : InAllTypes(word)) large += !(std::abs(value) <= 2);
    unknown += IsPoisonWord(word);
  }
  CHECK(numbers == 0);
  CHECK(large == 0);
  CHECK(unknown == 0);
  // A NaN that arithmetic makes is not poison.
  for (const float nan : {std::nanf(""), -std::nanf("")})
    CHECK_FALSE(IsPoisonWord(std::bit_cast<uint32_t>(nan)));
  CHECK_FALSE(IsPoisonHalf(0x7fc0));
  CHECK_FALSE(IsPoisonHalf(0x7e00));
}

TEST_CASE("no word of poison says what another one is, and no key what another one makes") {
  const std::vector<uint32_t> one = Filled({1}), other = Filled({2}), again = Filled({1});
  CHECK(one == again);
  const std::set<uint32_t> values(one.begin(), one.end());
  CHECK(values.size() > 4000);  // of 2^12
  for (const size_t distance : {1, 2, 64, 1024, 4096}) {
    std::set<uint32_t> differences;
    for (size_t i = 0; i + distance < one.size(); ++i) differences.insert(one[i + distance] - one[i]);
    CHECK(differences.size() > 4000);
  }
  size_t equal = 0;
  for (size_t i = 0; i < one.size(); ++i) equal += one[i] == other[i];
  CHECK(equal < 100);
}

TEST_CASE("one changed word of a poisoned range is noticed") {
  const Poison poison{SecretRandom()()};
  std::vector<uint32_t> words = Filled(poison);
  CHECK(IsAllPoison(poison, words.data(), 0, kWords));
  CHECK(IsAllPoison(poison, words.data() + 77, 77, kWords - 77));
  CHECK_FALSE(IsAllPoison(poison, words.data() + 77, 78, 10));
  for (const size_t place : {size_t{0}, size_t{5000}, size_t{kWords - 1}}) {
    words[place] ^= 1U << 31;
    CHECK_FALSE(IsAllPoison(poison, words.data(), 0, kWords));
    words[place] ^= 1U << 31;
  }
}

TEST_CASE("a large range is filled word by word like a small one, wherever it begins") {
  constexpr int64_t kLarge = (3 << 18) + 1029;  // words: streamed, and no whole number of blocks
  constexpr uint32_t kFirst = 17, kOutside = 0x12345678;
  const Poison poison{SecretRandom()()};
  for (const size_t begin : {size_t{4}, size_t{5}}) {  // aligned to 16 bytes, and not
    CAPTURE(begin);
    std::vector<uint32_t> words(begin + kLarge + 4, kOutside);
    FillPoison(poison, words.data() + begin, kLarge * 4, 2, kFirst);
    int64_t wrong = 0;
    for (int64_t i = 0; i < kLarge; ++i)
      wrong += words[begin + static_cast<size_t>(i)] != PoisonWord(poison, kFirst + static_cast<uint32_t>(i));
    CHECK(wrong == 0);
    CHECK(IsAllPoison(poison, words.data() + begin, kFirst, kLarge));
    CHECK(words[begin - 1] == kOutside);
    CHECK(words[begin + kLarge] == kOutside);
  }
}

}  // namespace kevin
