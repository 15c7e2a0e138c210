// `kevin train --resume` as a user runs it: from which checkpoint, over which records, and what it refuses.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/agent/train/recorded_world.h"
#include "tests/catch.h"

namespace kevin {
namespace {

TEST_CASE("stopped and gone on, a run ends with the same bytes") {
  const World world;
  REQUIRE(world.Train(kGrpo + "--out whole").code == 0);
  // The schedule is that of four steps, so the first half is cut off by taking its checkpoint alone.
  REQUIRE(world.Train(kGrpo + "--out half --checkpoint-every 2 --keep 9").code == 0);
  fs::remove_all(world / "half/checkpoints/step-00000004");
  fs::remove_all(world / "half/model");
  const TrainResult on = world.Train(kGrpo + "--out half --resume");
  INFO(on.errors);
  REQUIRE(on.code == 0);
  CHECK(on.events[0].at("step") == 3);
  CHECK(ReadAll(world / "half/model/model.safetensors") == ReadAll(world / "whole/model/model.safetensors"));
  const std::string metrics = ReadAll(world / "half/metrics.jsonl");
  CHECK(std::count(metrics.begin(), metrics.end(), '\n') == 4);
}

TEST_CASE("a run goes on over the records and with the batch that it began with, or says what differs") {
  const World world;
  REQUIRE(world.Train(kGrpo + "--out run --batch 1 --checkpoint-every 2 --keep 9").code == 0);
  const auto expect = [&](const std::string& part, const std::string& next, const std::string& arguments) {
    const TrainResult ran = world.Train(kGrpo + "--out run --resume " + arguments);
    INFO(arguments + ": " + ran.errors);
    CHECK(ran.code == 2);
    CHECK(ran.errors.find(part) != std::string::npos);
    CHECK(ran.errors.find(next) != std::string::npos);
    CHECK(ran.errors.find("memory plan") == std::string::npos);  // before anything is loaded
  };
  expect("was made with --batch 1, and this run is asked for with --batch 8",
         "give the options that the run began with", "");
  expect("was made with 2 units of records (fingerprint ", "give the databases and filters",
         "--batch 1 --problems level1/19");
  {
    Database database(world / "kevin.db", Database::Access::kReadWrite, 5000);
    database.Execute("UPDATE evaluations SET speedup = speedup * 1.01");
  }
  expect("and this run is asked for with 2 units of records (fingerprint ", "--until", "--batch 1");
  // A checkpoint from before fingerprints were stored is gone on from.
  const fs::path about = world / "run/checkpoints/step-00000002/trainer.json";
  fs::remove_all(world / "run/checkpoints/step-00000004");
  json earlier = json::parse(ReadAll(about));
  REQUIRE(earlier.at("options").erase("fingerprint") == 1);
  for (const char* name : {"units", "units_per_step", "longest_tokens"}) earlier.at("options").erase(name);
  std::ofstream(about) << earlier;
  const TrainResult on = world.Train(kGrpo + "--out run --resume --batch 1");
  INFO(on.errors);
  CHECK(on.code == 0);
  CHECK(on.events.at(0).at("step") == 3);
}

TEST_CASE("a run of adapters goes on over its base model alone, in whichever folder") {
  const World world;
  REQUIRE(world.Train(kGrpo + "--lora 2 --out run --checkpoint-every 2 --keep 9").code == 0);
  fs::remove_all(world / "run/checkpoints/step-00000004");
  const fs::path about = world / "run/checkpoints/step-00000002/trainer.json";
  const auto expect = [&](const std::string& part, const std::string& next, const std::string& arguments) {
    const TrainResult ran =
        world.Train("--steps 4 --learning-rate 1e-3 --lora 2 --out run --resume " + arguments);
    INFO(arguments + ": " + ran.errors);
    CHECK(ran.code == 2);
    CHECK(ran.errors.find(part) != std::string::npos);
    CHECK(ran.errors.find(next) != std::string::npos);
    CHECK(ran.errors.find("memory plan") == std::string::npos);  // before anything is loaded
  };
  // One number of the same model differs.
  fs::copy(world / "model", world / "other");
  std::fstream weights(world / "other/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  weights.seekp(-1, std::ios::end).put('\x41').flush();
  const std::string model = "give the model that the run began with";
  expect("and this run is asked for with --model other (fingerprint ", model, "--model other");
  fs::remove(world / "other/model.safetensors"), fs::remove(world / "other/config.json");
  fs::copy(world / "model/model.safetensors", world / "other/model.safetensors");
  json config = json::parse(ReadAll(world / "model/config.json"));
  config["rms_norm_eps"] = 0.01;
  std::ofstream(world / "other/config.json") << config;
  expect("and this run is asked for with --model other (fingerprint ", model, "--model other");
  expect("with --quantization int8", "give the options", "--model model --quantization int8");
  const json now = json::parse(ReadAll(about));
  json earlier = now;
  earlier["options"]["weights_dtype"] = "BF16";
  std::ofstream(about) << earlier;
  expect("with weights in F32 (--dtype)", "give the --dtype", "--model model");
  // From before these were stored.
  for (const char* name : {"model_fingerprint", "reference_fingerprint", "weights_dtype"})
    REQUIRE(earlier.at("options").erase(name) == 1);
  std::ofstream(about) << earlier;
  CHECK(world.Train(kGrpo + "--lora 2 --out run --resume").events.at(0).at("step") == 3);
  fs::remove_all(world / "run/checkpoints/step-00000004");
  std::ofstream(about) << now;
  fs::rename(world / "model", world / "moved");
  const TrainResult on =
      world.Train("--model moved --steps 4 --learning-rate 1e-3 --lora 2 --out run --resume");
  INFO(on.errors);
  REQUIRE(on.code == 0);
  CHECK(on.events[0].at("step") == 3);
}

TEST_CASE("half a checkpoint is named with the next step, and the one before it is gone on from") {
  const World world;
  const std::string whole = kGrpo + "--checkpoint-every 2 --keep 9 --out whole ";
  REQUIRE(world.Train(whole).code == 0);
  const fs::path run = world / "half", newest = run / "checkpoints/step-00000004";
  const auto cut = [](const fs::path& file) { fs::resize_file(file, fs::file_size(file) / 2); };
  const std::vector<std::pair<std::string, std::function<void()>>> damages = {
      {"trainer.json is damaged", [&] { cut(newest / "trainer.json"); }},
      {"trainer.json is damaged", [&] { fs::remove(newest / "trainer.json"); }},
      {"model.safetensors", [&] { cut(newest / "model/model.safetensors"); }},
      {"config.json", [&] { fs::remove(newest / "model/config.json"); }},
      {"optimizer-0-of-1", [&] { cut(newest / "optimizer-0-of-1.safetensors"); }},
      {"optimizer-0-of-1", [&] { fs::remove(newest / "optimizer-0-of-1.safetensors"); }},
  };
  for (const auto& [part, damage] : damages) {
    fs::remove_all(run);
    fs::copy(world / "whole", run, fs::copy_options::recursive);
    damage();
    const TrainResult refused = world.Train(kGrpo + "--out half --resume");
    INFO(part << ": " << refused.errors);
    CHECK(refused.code == 2);
    CHECK(refused.errors.find("step-00000004") != std::string::npos);
    CHECK(refused.errors.find(part) != std::string::npos);
    CHECK(refused.errors.find("remove that folder") != std::string::npos);
  }
  fs::remove_all(newest);
  REQUIRE(world.Train(kGrpo + "--out half --resume").code == 0);
  CHECK(ReadAll(run / "model/model.safetensors") == ReadAll(world / "whole/model/model.safetensors"));
}

TEST_CASE("a disk that is full while a checkpoint is written ends the run; the one before is gone on from") {
  const World world;
  REQUIRE(world.Train(kGrpo + "--out whole").code == 0);
  REQUIRE(world.Train(kGrpo + "--checkpoint-every 2 --keep 9 --out run").code == 0);
  fs::remove_all(world / "run/checkpoints/step-00000004");
  // No file of these programs may be longer than 40 KiB: the weights fit, the optimiser's state does not.
  const TrainResult full = world.Train(kGrpo + "--out run --resume", "bash -c 'ulimit -f 40; exec \"$@\"' -");
  INFO(full.errors);
  CHECK(full.code == 4);
  CHECK(full.errors.find("the checkpoint could not be written") != std::string::npos);
  CHECK(full.errors.find("make room") != std::string::npos);
  CHECK(std::distance(fs::directory_iterator(world / "run/checkpoints"), fs::directory_iterator()) == 1);
  const TrainResult on = world.Train(kGrpo + "--out run --resume");
  INFO(on.errors);
  REQUIRE(on.code == 0);
  CHECK(on.events[0].at("step") == 3);
  CHECK(ReadAll(world / "run/model/model.safetensors") == ReadAll(world / "whole/model/model.safetensors"));
}

}  // namespace
}  // namespace kevin
