#include "env/process/random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "env/process/generator.h"
#include "tests/catch.h"
#include "tests/env/process/value_streams.h"

namespace kevin {
namespace {

// The keystream of blocks 0 and 1 in hexadecimal, byte by byte.
std::string KeystreamText(const SecretKey& key, uint64_t nonce, uint64_t counter, int rounds, int blocks) {
  std::string text;
  for (int block = 0; block < blocks; ++block) {
    for (const uint32_t word : MakeChaChaBlock(key, counter + static_cast<uint64_t>(block), nonce, rounds)) {
      for (int byte = 0; byte < 4; ++byte) {
        const uint32_t value = word >> (8 * byte) & 255;
        text += "0123456789abcdef"[value >> 4];
        text += "0123456789abcdef"[value & 15];
      }
    }
  }
  return text;
}

SecretKey KeyOfBytes(uint8_t first, uint8_t step) {
  SecretKey key;
  uint32_t byte = first;
  for (uint32_t& word : key.words) {
    for (int i = 0; i < 4; ++i, byte += step) word |= (byte & 255) << (8 * i);
  }
  return key;
}

using Group = std::vector<uint32_t>;
Group GroupOf(const SecretKey& key, uint64_t nonce, int64_t group) {
  struct alignas(64) Aligned {
    uint32_t words[kGroupWords];
  } aligned;
  MakeKeystreamGroup(key, nonce, group, aligned.words);
  return {aligned.words, aligned.words + kGroupWords};
}

}  // namespace

// Sources: 8 rounds, draft-strombergson-chacha-test-vectors (256-bit keys, test vectors 1 and 2); 20 rounds,
// RFC 8439 A.1, test vectors 1 and 2, and 2.3.2, whose words 13 to 15 are our counter's upper half and nonce.
TEST_CASE("ChaCha gives the published test vectors") {
  const SecretKey zero;
  CHECK(KeystreamText(zero, 0, 0, 8, 2) ==
        "3e00ef2f895f40d67f5bb8e81f09a5a12c840ec3ce9a7f3b181be188ef711a1e"
        "984ce172b9216f419f445367456d5619314a42a3da86b001387bfdb80e0cfe42"
        "d2aefa0deaa5c151bf0adb6c01f2a5adc0fd581259f9a2aadcf20f8fd566a26b"
        "5032ec38bbc5da98ee0c6f568b872a65a08abf251deb21bb4b56e5d8821e68aa");
  // What inputs are drawn from has these 8 rounds.
  CHECK(MakeChaChaBlock(zero, 0, 0)[0] == 0x2fef003e);
  CHECK(GroupOf(zero, 0, 0)[0] == 0x2fef003e);
  CHECK(GroupOf(zero, 0, 0)[kGroupBlocks] == 0xd6405f89);
  SecretKey one;
  one.words[0] = 1;
  CHECK(KeystreamText(one, 0, 0, 8, 1) ==
        "cf5ee9a0494aa9613e05d5ed725b804b12f4a465ee635acc3a311de8740489ea"
        "289d04f43c7518db56eb4433e498a1238cd8464d3763ddbb9222ee3bd8fae3c8");
  CHECK(KeystreamText(zero, 0, 0, 20, 2) ==
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
        "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
        "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f");
  CHECK(KeystreamText(KeyOfBytes(0, 1), 0x4a000000, 0x0900000000000001, 20, 1) ==
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e");
}

TEST_CASE("the blocks of a group are those of the counter") {
  const SecretKey key = KeyOfBytes(3, 7);
  // The counter carries into its upper word between the last two groups.
  for (const int64_t group : {int64_t{0}, int64_t{5}, int64_t{0x7ffffff}, int64_t{0x8000000}}) {
    const Group words = GroupOf(key, 0x123456789abcdef0, group);
    int different = 0;
    for (int64_t block = 0; block < kGroupBlocks; ++block) {
      const ChaChaBlock expected =
          MakeChaChaBlock(key, static_cast<uint64_t>(group * kGroupBlocks + block), 0x123456789abcdef0);
      for (size_t w = 0; w < expected.size(); ++w)
        different += words[w * kGroupBlocks + static_cast<size_t>(block)] != expected[w];
    }
    CHECK(different == 0);
  }
}

TEST_CASE("every bit of key, nonce and counter changes half of the keystream") {
  const auto distance = [](const ChaChaBlock& a, const ChaChaBlock& b) {
    int bits = 0;
    for (size_t i = 0; i < a.size(); ++i) bits += std::popcount(a[i] ^ b[i]);
    return bits;
  };
  const SecretKey key = KeyOfBytes(9, 5);
  const ChaChaBlock whole = MakeChaChaBlock(key, 77, 88);
  int smallest = 512, largest = 0;
  const auto see = [&](const ChaChaBlock& other) {
    smallest = std::min(smallest, distance(whole, other));
    largest = std::max(largest, distance(whole, other));
  };
  for (int bit = 0; bit < 256; ++bit) {
    SecretKey other = key;
    other.words[static_cast<size_t>(bit / 32)] ^= 1U << (bit % 32);
    see(MakeChaChaBlock(other, 77, 88));
  }
  for (int bit = 0; bit < 64; ++bit) {
    see(MakeChaChaBlock(key, 77 ^ (uint64_t{1} << bit), 88));
    see(MakeChaChaBlock(key, 77, 88 ^ (uint64_t{1} << bit)));
  }
  CHECK(smallest > 256 - 75);  // 11.3 is the standard deviation
  CHECK(largest < 256 + 75);
}

// A generator that mixes (counter, key) by steps that can each be undone gives the key away: undo the steps on
// two values and compare. Here each value depends on all 256 bits of the key, and the sum with the first state
// leaves no step that could be undone without the key.
TEST_CASE("the keystream without its last addition is not the state, and blocks share no word") {
  const SecretKey key = KeyOfBytes(1, 11);
  std::set<uint32_t> seen;
  for (uint64_t counter = 0; counter < 256; ++counter) {
    for (const uint32_t word : MakeChaChaBlock(key, counter, 4)) seen.insert(word);
  }
  CHECK(seen.size() >= 4096 - 3);
  for (const uint32_t word : key.words) CHECK(seen.count(word) == 0);
}

// Run backwards from a whole block of keystream: 8 rounds undone give the first state only if that state was
// not added in. The constants of the layout would show success.
TEST_CASE("undoing the rounds on a whole block of output does not give the key") {
  const auto undo_quarter = [](uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d) {
    b = std::rotr(b, 7) ^ c;
    c -= d;
    d = std::rotr(d, 8) ^ a;
    a -= b;
    b = std::rotr(b, 12) ^ c;
    c -= d;
    d = std::rotr(d, 16) ^ a;
    a -= b;
  };
  const auto undo = [&](ChaChaBlock x) {
    for (int i = 0; i < kChaChaRounds; i += 2) {
      undo_quarter(x[3], x[4], x[9], x[14]), undo_quarter(x[2], x[7], x[8], x[13]);
      undo_quarter(x[1], x[6], x[11], x[12]), undo_quarter(x[0], x[5], x[10], x[15]);
      undo_quarter(x[3], x[7], x[11], x[15]), undo_quarter(x[2], x[6], x[10], x[14]);
      undo_quarter(x[1], x[5], x[9], x[13]), undo_quarter(x[0], x[4], x[8], x[12]);
    }
    return x;
  };
  const SecretKey key = KeyOfBytes(1, 11);
  const ChaChaBlock output = MakeChaChaBlock(key, 6, 4);
  const ChaChaBlock start = [&] {  // what an attacker wants
    ChaChaBlock state = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574};
    std::copy(key.words.begin(), key.words.end(), state.begin() + 4);
    state[12] = 6, state[14] = 4;
    return state;
  }();
  ChaChaBlock permuted = output;
  for (size_t i = 0; i < permuted.size(); ++i) permuted[i] -= start[i];
  CHECK(undo(permuted) == start);  // undone correctly, with the key
  int shared = 0;
  for (size_t i = 0; i < start.size(); ++i) shared += undo(output)[i] == start[i];
  CHECK(shared == 0);
}

TEST_CASE("tensors, calls and drawings have streams of their own") {
  std::set<uint32_t> firsts;
  size_t streams = 0;
  DrawingKeys keys(KeyOfBytes(2, 3)), same(KeyOfBytes(2, 3));
  for (int drawing = 0; drawing < 8; ++drawing) {
    const ValueStream stream = keys.Next();
    CHECK(same.Next().key == stream.key);  // reproducible from the root
    for (size_t call = 0; call < 4; ++call) {
      for (size_t tensor = 0; tensor < 4; ++tensor, ++streams) {
        const ValueStream one = stream.OfCall(call).OfTensor(tensor);
        firsts.insert(GroupOf(one.key, one.nonce, 0)[0]);
      }
    }
  }
  CHECK(firsts.size() == streams);
}

TEST_CASE("records keep the whole root, and each one is new") {
  DrawingKeys keys;
  const std::vector<uint64_t> first = keys.Renew(), second = keys.Renew();
  REQUIRE(second.size() == 4);
  CHECK(first != second);
  SecretKey root;
  for (size_t i = 0; i < root.words.size(); ++i)
    root.words[i] = static_cast<uint32_t>(second[i / 2] >> (32 * (i % 2)));
  DrawingKeys again(root);
  CHECK(again.Next().key == keys.Next().key);
  CHECK(!(NewSecretKey() == NewSecretKey()));
}

TEST_CASE("mixture members of drawings are evenly distributed") {
  DrawingKeys keys(KeyOfBytes(5, 9));
  std::vector<int> counts(kMixtureMembers);
  for (int i = 0; i < 4000; ++i) ++counts[static_cast<size_t>(keys.Next().member)];
  for (const int count : counts) CHECK(std::abs(count - 1000) < 150);
}

TEST_CASE("a generator for the standard library's distributions") {
  SecretRandom random(KeyOfBytes(4, 1)), same(KeyOfBytes(4, 1)), other(KeyOfBytes(4, 2)), fresh;
  std::vector<uint64_t> values, others;
  for (int i = 0; i < 1000; ++i) {
    values.push_back(random());
    CHECK(same() == values.back());
    others.push_back(other());
  }
  CHECK(values != others);
  CHECK(std::set<uint64_t>(values.begin(), values.end()).size() == values.size());
  CHECK(fresh() != values.front());
  // The state of a Mersenne twister is known after 312 of its numbers. Here every one of 64 bits is balanced.
  std::vector<int> ones(64);
  for (int i = 0; i < 20000; ++i) {
    const uint64_t value = random();
    for (size_t bit = 0; bit < 64; ++bit) ones[bit] += static_cast<int>(value >> bit & 1);
  }
  for (const int count : ones) CHECK(std::abs(count - 10000) < 400);
  std::vector<int> faces(6);
  for (int i = 0; i < 6000; ++i)
    ++faces[static_cast<size_t>(std::uniform_int_distribution<int>(0, 5)(random))];
  for (const int count : faces) CHECK(std::abs(count - 1000) < 150);
}

}  // namespace kevin
