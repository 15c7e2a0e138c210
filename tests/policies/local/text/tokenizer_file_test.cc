// tokenizer.json files that nobody should trust.
#include <chrono>
#include <functional>
#include <random>

#include "policies/local/text/tokenizer.h"
#include "tests/policies/local/text/text_fixture.h"

namespace kevin::local {
namespace {

using Json = nlohmann::json;

std::string LoadComplaint(const std::string& text) {
  const ModelFolder folder;
  folder.Write("tokenizer.json", text);
  const std::string complaint = Complaint([&] { Tokenizer::Load(folder.path()); });
  const std::string file = (folder.path() / "tokenizer.json").string() + ": ";
  REQUIRE(complaint.starts_with(file));
  return complaint.substr(file.size());
}

const Json& Good() {
  static const Json good = Json::parse(ReadText(Goldens() / "tokenizers/llama/tokenizer.json"));
  return good;
}

std::string Changed(const std::function<void(Json&)>& change) {
  Json file = Good();
  change(file);
  return LoadComplaint(file.dump());
}

TEST_CASE("files that are none") {
  const ModelFolder folder;
  CHECK(Complaint([&] { Tokenizer::Load(folder.path()); }).ends_with("tokenizer.json: no such file"));
  std::filesystem::create_directories(folder.path() / "tokenizer.json");
  CHECK(Complaint([&] { Tokenizer::Load(folder.path()); }).ends_with("tokenizer.json: no file"));
  const ModelFolder giant;
  giant.Write("tokenizer.json", "{}");
  std::filesystem::resize_file(giant.path() / "tokenizer.json", 300ULL << 20);  // a hole, no disk
  CHECK(Complaint([&] { Tokenizer::Load(giant.path()); }).find("314 MB, and at most 268 MB") !=
        std::string::npos);
}

TEST_CASE("texts that are no tokenizer") {
  CHECK(LoadComplaint("").starts_with("line 1, byte 1: no JSON: "));
  CHECK(LoadComplaint("{\n\n  \"model\" }").starts_with("line 3, byte "));
  CHECK(LoadComplaint("[]") == "it is no JSON object");
  CHECK(LoadComplaint("{\"model\": \"\xFF\"}").find("no JSON") != std::string::npos);
  CHECK(LoadComplaint(Good().dump().substr(0, 20000)).find("no JSON") != std::string::npos);
  CHECK(LoadComplaint(std::string(1'000'000, '[')).find("no JSON") != std::string::npos);
}

TEST_CASE("models that are no byte-level BPE") {
  CHECK(Changed([](Json& f) { f.erase("model"); }) == "it has no \"model\"");
  CHECK(Changed([](Json& f) { f["model"]["type"] = "Unigram"; }) ==
        "model.type is \"Unigram\"; only byte-level \"BPE\" is known");
  CHECK(Changed([](Json& f) { f["model"].erase("vocab"); }) == "model.vocab is missing");
  CHECK(Changed([](Json& f) { f["model"]["vocab"] = Json::array(); }) ==
        "model.vocab is no object with tokens");
  CHECK(Changed([](Json& f) { f["model"].erase("merges"); }) == "model.merges is missing or no list");
  CHECK(Changed([](Json& f) { f["model"]["dropout"] = 0.1; }) == "model.dropout is 0.1: ids would be random");
  CHECK(Changed([](Json& f) { f["model"]["end_of_word_suffix"] = "</w>"; }) ==
        "model.end_of_word_suffix is \"</w>\"; byte-level BPE has none");
  CHECK(Changed([](Json& f) {
          f["model"]["vocab"].erase("é");
          f["model"]["merges"] = Json::array();
        }) == "model.vocab lacks the byte 0xE9 (token \"é\"): no byte-level tokenizer");
}

TEST_CASE("ids and merges that cannot be") {
  CHECK(Changed([](Json& f) { f["model"]["vocab"]["!"] = -1; }) ==
        "token \"!\": id -1 is out of range (0 to 16777215)");
  CHECK(Changed([](Json& f) { f["model"]["vocab"]["!"] = 4'000'000'000; }).find("out of range") !=
        std::string::npos);
  CHECK(Changed([](Json& f) { f["model"]["vocab"]["!"] = 1.5; }) ==
        "token \"!\": its id is number, no integer");
  CHECK(Changed([](Json& f) { f["model"]["vocab"]["!"] = 7; }).find("id 7 is given twice") !=
        std::string::npos);
  CHECK(Changed([](Json& f) { f["model"]["vocab"][""] = 90000; }) == "model.vocab: token 90000 is empty");
  CHECK(Changed([](Json& f) {
          f["model"]["vocab"][std::string(70000, 'x')] = 90000;
        }).find("has 70000 bytes") != std::string::npos);
  const auto merge = [](Json value) {
    return Changed([&](Json& f) { f["model"]["merges"] = Json::array({{"t", "h"}, std::move(value)}); });
  };
  CHECK(merge({"qq", "t"}) == "model.merges: entry 1 names \"qq\", which model.vocab lacks");
  CHECK(merge({"q", "x"}) == "model.merges: entry 1 names \"qx\", which model.vocab lacks");
  for (const Json& broken : {Json("th"), Json("t h e"), Json(3), Json::array({"t"}), Json::array({"t", 1})}) {
    CHECK(merge(broken) == "model.merges: entry 1 is no pair of tokens");
  }
}

TEST_CASE("added tokens that cannot be") {
  const auto added = [](const Json& token) {
    return Changed([&](Json& f) { f["added_tokens"].push_back(token); });
  };
  CHECK(Changed([](Json& f) { f["added_tokens"] = 1; }) == "added_tokens is no list");
  CHECK(added(1) == "added_tokens: entry 5 is no object");
  CHECK(added({{"id", 5000}}) == "added_tokens: entry 5 has no \"content\"");
  CHECK(added({{"content", "<x>"}}) == "token \"<x>\": its id is null, no integer");
  CHECK(added({{"content", "<x>"}, {"id", 5000}, {"lstrip", 1}}) ==
        "added_tokens: entry 5: \"lstrip\" is no boolean");
  CHECK(added({{"content", "<x>"}, {"id", 3}}) == "added_tokens: \"<x>\" or its id 3 is given twice");
  CHECK(added({{"content", "!"}, {"id", 5000}}).find("has id 5000, in model.vocab ") != std::string::npos);
}

TEST_CASE("steps that are not known") {
  CHECK(Changed([](Json& f) {
          f["normalizer"] = {{"type", "Lowercase"}};
        }) == "normalizer: \"Lowercase\" is not known, only \"NFC\"");
  CHECK(Changed([](Json& f) { f["normalizer"] = 3; }) == "normalizer: a step has no \"type\"");
  CHECK(Changed([](Json& f) { f["pre_tokenizer"] = nullptr; }) ==
        "pre_tokenizer: no \"ByteLevel\" in it: no byte-level tokenizer");
  CHECK(Changed([](Json& f) {
          f["pre_tokenizer"] = {{"type", "Metaspace"}};
        }) == "pre_tokenizer: \"Metaspace\" is not known, only \"Split\" and \"ByteLevel\"");
  const auto split = [](const char* key, const Json& value) {
    return Changed([&](Json& f) { f["pre_tokenizer"]["pretokenizers"][0][key] = value; });
  };
  CHECK(split("pattern", {{"Regex", "a(b"}})
            .starts_with("pre_tokenizer: its pattern is not understood: missing closing"));
  CHECK(split("pattern", {{"Regex", std::string(20000, 'a')}}) == "pre_tokenizer: a pattern of 20000 bytes");
  CHECK(split("pattern", 1) ==
        "pre_tokenizer: a Split has neither a \"Regex\" nor a \"String\" as its pattern");
  CHECK(split("behavior", "Sideways") == "pre_tokenizer: unknown behavior \"Sideways\" of a Split");
  CHECK(split("invert", "no") == "\"invert\" is \"no\", no boolean");
  CHECK(Changed([](Json& f) {
          auto& steps = f["pre_tokenizer"]["pretokenizers"];
          std::swap(steps[0], steps[1]);
        }) == "pre_tokenizer: \"Split\" comes after \"ByteLevel\", which must be the last step");
  CHECK(Changed([](Json& f) {
          Json inner = f["pre_tokenizer"];
          f["pre_tokenizer"]["pretokenizers"] = Json::array({inner});
        }) == "pre_tokenizer: a Sequence within a Sequence");
  CHECK(Changed([](Json& f) { f["decoder"] = {{"type", "Fuse"}}; }) == "decoder: it is not \"ByteLevel\"");
  CHECK(Changed([](Json& f) {
          f["post_processor"] = {{"type", "BertProcessing"}};
        }) == "post_processor: \"BertProcessing\" is not known");
  const auto around = [](const Json& ids) {
    return Changed([&](Json& f) {
      f["post_processor"]["processors"][1]["special_tokens"]["<|begin_of_text|>"]["ids"] = ids;
    });
  };
  CHECK(around({90000}) == "post_processor: there is no token 90000");
  CHECK(around("x").find("is no token of \"special_tokens\"") != std::string::npos);
}

TEST_CASE("a word that is a token is that token where merges are ignored, though no merge makes it") {
  const ModelFolder folder;
  for (const bool ignored : {true, false}) {
    Json file = Good();
    file["model"]["vocab"]["Ġqzq"] = 20000;
    file["model"]["ignore_merges"] = ignored;
    folder.Write("tokenizer.json", file.dump());
    const auto tokenizer = Tokenizer::Load(folder.path());
    const auto ids = tokenizer->Encode("a qzq");
    CHECK((ids.size() == 2 && ids[1] == 20000) == ignored);
    CHECK(tokenizer->Decode(ids) == "a qzq");
    CHECK(tokenizer->VocabularySize() == 20001);
  }
}

TEST_CASE("an expression that never comes to an end is stopped") {
  Json file = Good();
  file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(x+x+)+y";
  const ModelFolder folder;
  folder.Write("tokenizer.json", file.dump());
  const auto tokenizer = Tokenizer::Load(folder.path());
  const auto start = std::chrono::steady_clock::now();
  CHECK(Complaint([&] {
          tokenizer->Encode(std::string(100, 'x') + " y");
        }).find("cannot split the text: match limit") != std::string::npos);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(5));
  CHECK(tokenizer->Decode(tokenizer->Encode("xxy ok")) == "xxy ok");
}

TEST_CASE("files with random damage load or are refused, and nothing worse") {
  const std::string good = ReadText(Goldens() / "tokenizers/odd/tokenizer.json");
  const ModelFolder folder;
  std::mt19937 rng(3);
  int loaded = 0, refused = 0;
  for (int i = 0; i < 400; ++i) {
    std::string text = good;
    for (size_t n = 1 + rng() % 4; n > 0; --n) {
      // Mostly near the ends, where the steps are; the middle is one long list.
      const size_t at = rng() % 3 == 0 ? rng() % text.size() : rng() % 2500;
      static const std::string kBytes = "\"{}[]:,0-e\\nt\xC3 z";
      if (rng() % 2 == 0) {
        text[at] = kBytes[rng() % kBytes.size()];
      } else {
        text.erase(at, 1 + rng() % 8);
      }
    }
    folder.Write("tokenizer.json", text);
    try {
      const auto tokenizer = Tokenizer::Load(folder.path());
      ++loaded;
      const auto ids = tokenizer->Encode("Some text-with_42 things (and <end> more)");
      CHECK(tokenizer->Decode(ids).size() > 0);
    } catch (const Error& error) {
      ++refused;
      CHECK(error.code() == ExitCode::kBadRequest);
    }
  }
  CHECK(loaded > 5);
  CHECK(refused > 100);
}

}  // namespace
}  // namespace kevin::local
