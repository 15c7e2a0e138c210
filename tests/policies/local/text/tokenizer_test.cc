// Tokenizers against the `tokenizers` library's own answers (goldens/make_tokenizers.py), and what must hold
// for any text.
#include "policies/local/text/tokenizer.h"

#include <chrono>
#include <random>

#include "policies/local/text/pre_tokenizer.h"
#include "policies/local/text/utf8.h"
#include "tests/policies/local/text/text_fixture.h"

namespace kevin::local {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<int32_t>;

std::shared_ptr<const Tokenizer> LoadGolden(const std::string& name) {
  return Tokenizer::Load(Goldens() / "tokenizers" / name);
}

std::string Streamed(const std::shared_ptr<const Tokenizer>& tokenizer, const Ids& ids, bool skip_special) {
  StreamDecoder decoder(tokenizer, skip_special);
  std::string text;
  for (const int32_t id : ids) {
    const std::string piece = decoder.Add(id);
    CHECK(IsUtf8(piece));
    text += piece;
  }
  return text + decoder.Finish();
}

TEST_CASE("texts become the ids that the tokenizers library gives") {
  const Json golden = ReadGolden<Json>("encodings.json");
  for (const char* name : {"qwen", "llama", "odd"}) {
    const auto tokenizer = LoadGolden(name);
    const Json& expected = golden.at(name);
    CHECK(tokenizer->VocabularySize() == expected.at("size").get<int>());
    REQUIRE(expected.at("encodings").size() > 100);
    for (const Json& each : expected.at("encodings")) {
      const auto text = each.at("text").get<std::string>();
      INFO(name << ": " << text);
      const Ids ids = each.at("ids").get<Ids>();
      CHECK(tokenizer->Encode(text) == ids);
      CHECK(tokenizer->Encode(text, false) == each.value("plain_ids", ids));
    }
    CHECK(tokenizer->WithTemplate({}) == expected.at("around").get<Ids>());
  }
}

TEST_CASE("ids become the texts that the tokenizers library gives, at once and one by one") {
  const Json golden = ReadGolden<Json>("encodings.json");
  for (const char* name : {"qwen", "llama", "odd"}) {
    const auto tokenizer = LoadGolden(name);
    REQUIRE(golden.at(name).at("decodings").size() == 40);
    for (const Json& each : golden.at(name).at("decodings")) {
      const Ids ids = each.at("ids").get<Ids>();
      for (const bool skip_special : {false, true}) {
        const auto text = each.at(skip_special ? "visible" : "text").get<std::string>();
        CHECK(tokenizer->Decode(ids, skip_special) == text);
        CHECK(Streamed(tokenizer, ids, skip_special) == text);
      }
    }
  }
}

TEST_CASE("every special and added token is one id, and parts of a chat with parse_special only") {
  for (const char* name : {"qwen", "llama"}) {
    const auto tokenizer = LoadGolden(name);
    const Json file = Json::parse(ReadText(Goldens() / "tokenizers" / name / "tokenizer.json"));
    for (const Json& token : file.at("added_tokens")) {
      const auto text = token.at("content").get<std::string>();
      const int32_t id = token.at("id").get<int32_t>();
      const bool special = token.at("special").get<bool>();
      INFO(text);
      CHECK(tokenizer->Id(text) == id);
      CHECK(tokenizer->Encode(text) == Ids{id});
      CHECK(tokenizer->IsSpecial(id) == special);
      CHECK((tokenizer->Encode(text, false).size() > 1) == special);
      CHECK(tokenizer->Decode(Ids{id}) == text);
      CHECK(tokenizer->Decode(Ids{id}, true) == (special ? "" : text));
      Ids ids = tokenizer->Encode("a" + text + " b");
      CHECK(ids.at(1) == id);
    }
  }
}

TEST_CASE("ids that no token has") {
  const auto tokenizer = LoadGolden("qwen");
  CHECK(tokenizer->Decode(Ids{-1, 1 << 30, tokenizer->VocabularySize()}).empty());
  CHECK(tokenizer->Bytes(-5).empty());
  CHECK_FALSE(tokenizer->IsSpecial(-1));
  CHECK_FALSE(tokenizer->IsSpecial(1 << 30));
  CHECK(tokenizer->Id("no such token") == std::nullopt);
  CHECK(tokenizer->Id("Ġ") == tokenizer->Encode(" ").at(0));
}

// Characters from everywhere: ASCII, combining marks, jamo, surrogates' neighbours, the last plane.
std::string RandomText(std::mt19937& rng) {
  static const std::pair<char32_t, char32_t> kRanges[] = {
      {0, 0x7F},        {0x80, 0x2FF},    {0x300, 0x36F},     {0x370, 0x1FFF},
      {0x1100, 0x11FF}, {0x2000, 0x206F}, {0x4E00, 0x4FFF},   {0xAC00, 0xAFFF},
      {0xD7A0, 0xD7FF}, {0xE000, 0xFFFF}, {0x1F300, 0x1F6FF}, {0x10FF00, 0x10FFFF}};
  std::string text;
  for (size_t i = rng() % 40; i > 0; --i) {
    const auto& [low, high] = kRanges[rng() % std::size(kRanges)];
    AppendUtf8(text, low + static_cast<char32_t>(rng() % (high - low + 1)));
  }
  return text;
}

TEST_CASE("a text comes back from its ids, normalised") {
  std::mt19937 rng(1);
  const auto qwen = LoadGolden("qwen"), llama = LoadGolden("llama");
  int changed = 0;
  for (int i = 0; i < 3000; ++i) {
    const std::string text = RandomText(rng), normal = ToNfc(text);
    changed += normal != text;
    for (const bool parse_special : {true, false}) {
      const Ids ids = qwen->Encode(text, parse_special);
      CHECK(qwen->Decode(ids) == normal);
      CHECK(Streamed(qwen, ids, false) == normal);
      CHECK(llama->Decode(llama->Encode(text, parse_special)) == text);
    }
  }
  CHECK(changed > 300);
}

TEST_CASE("bytes that are no UTF-8 become U+FFFD") {
  CHECK(LossyUtf8("a\xFF"
                  "b") == "a\uFFFDb");
  CHECK(LossyUtf8("\xE2\x82") == "\uFFFD");  // one for a maximal part
  CHECK(LossyUtf8("\xE2\x28\xA1") == "\uFFFD(\uFFFD");
  CHECK(LossyUtf8("\xF0\x9F\x98") == "\uFFFD");
  CHECK(LossyUtf8("\xED\xA0\x80") == "\uFFFD\uFFFD\uFFFD");  // a surrogate
  CHECK(LossyUtf8("\xC0\xAF\xF5") == "\uFFFD\uFFFD\uFFFD");
  CHECK(LossyUtf8("\xF4\x90\x80\x80") == "\uFFFD\uFFFD\uFFFD\uFFFD");
  const auto llama = LoadGolden("llama");
  std::mt19937 rng(2);
  for (int i = 0; i < 1000; ++i) {
    std::string bytes;
    for (size_t n = rng() % 12; n > 0; --n)
      bytes += static_cast<char>(rng() % 3 == 0 ? rng() : 0x80 + rng() % 0x80);
    CHECK(llama->Decode(llama->Encode(bytes)) == LossyUtf8(bytes));
  }
}

TEST_CASE("white space in an expression is Unicode's, and an empty match does not follow another match") {
  const auto matches = [](const char* pattern, std::string_view text) {
    const Regex regex(pattern);
    Regex::Search search(regex, text);
    std::vector<std::string> found;
    for (Regex::Match match; search.Next(match);) {
      found.emplace_back(text.substr(match.begin, match.end - match.begin));
    }
    return found;
  };
  using Texts = std::vector<std::string>;
  const std::string text = "a\u180e\u2003\u0085\u00a0b";  // U+180E was white space before Unicode 6.3
  CHECK(matches("\\s+", text) == Texts{"\u2003\u0085\u00a0"});
  CHECK(matches("[\\sx]+", text) == Texts{"\u2003\u0085\u00a0"});
  CHECK(matches("\\S+", text) == Texts{"a\u180e", "b"});
  CHECK(matches("[^\\s]+", text) == Texts{"a\u180e", "b"});
  CHECK(matches("x*", "xé") == Texts{"x", ""});
}

TEST_CASE("a character that comes in parts is handed out whole") {
  const auto llama = LoadGolden("llama");
  StreamDecoder decoder(llama);
  const std::string smile = "\xF0\x9F\xA4\xAF";  // no token of its own
  const Ids ids = llama->Encode(smile);
  REQUIRE(ids.size() > 1);
  for (size_t i = 0; i + 1 < ids.size(); ++i) CHECK(decoder.Add(ids[i]).empty());
  CHECK(decoder.Add(ids.back()) == smile);
  CHECK(decoder.Finish().empty());
  CHECK(decoder.Add(ids[0]).empty());
  CHECK(decoder.Finish() == "\uFFFD");
  CHECK(decoder.Finish().empty());
}

TEST_CASE("a megabyte takes well under a second, whatever is in it") {
  const auto tokenizer = LoadGolden("qwen");
  std::string source;
  while (source.size() < 1'000'000) source += ReadText(Goldens() / "corpus.txt");
  for (const std::string& text : {source, std::string(1'000'000, 'a'), std::string(1'000'000, ' '),
                                  std::string(1'000'000, '<'), std::string(1'000'000, '\n')}) {
    const auto start = std::chrono::steady_clock::now();
    const Ids ids = tokenizer->Encode(text);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    INFO(text.substr(0, 10));
    CHECK(seconds < 5);  // quadratic would be minutes; a sanitizer and a busy machine are allowed for
    CHECK(tokenizer->Decode(ids) == ToNfc(text));
  }
}

}  // namespace
}  // namespace kevin::local
