// `kevin train --online --sampler`: mock servers with the calls for new weights of SGLang and vLLM, in front of kevin-model.

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <future>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "policies/local/serve/model_process.h"
#include "policies/remote/http_client.h"
#include "tests/agent/train/online_world.h"
#include "tests/agent/train/rank_processes.h"
#include "tests/catch.h"
#include "tests/folders.h"
#include "tests/support/mock_server.h"

namespace kevin {
namespace {

MockReply JsonReply(int status, const std::string& body) {
  return {status, {"content-type: application/json"}, {{0, body}}, MockReply::End::kWhole};
}

// A request to a mock server, answered by kevin-model.
MockReply Forward(const MockRequest& request, const std::string& model_url) {
  remote::HttpClient client({5, 60, 60, size_t{1} << 24}, "");
  remote::HttpRequest forward;
  forward.url = "http://localhost" + request.path;
  forward.unix_socket = model_url.substr(std::string("unix:").size());
  forward.headers = {"content-type: application/json"};
  if (request.method == "POST") forward.body = request.body;
  const remote::HttpResponse got = client.Send(forward, nullptr, nullptr);
  const auto type = got.headers.find("content-type");
  const std::string header = "content-type: " + (type == got.headers.end() ? "text/plain" : type->second);
  return {got.status.value_or(502), {header}, {{0, got.body}}, MockReply::End::kWhole};
}

const fs::path& ModelProgram() {
  static const fs::path kProgram = BinaryFolder() / "bin/kevin-model";
  return kProgram;
}

// A server in front of kevin-model that takes note of the weights that it is given, and keeps its own.
class ServerOfOldWeights {
 public:
  explicit ServerOfOldWeights(const fs::path& folder)
      : model_(ModelProgram(), {folder.string(), "--device=cpu"}, [](const std::string&) {}),
        server_([this](const MockRequest& request) { return Answer(request); }) {}

  std::string Spec() const { return "openai:" + model_.model() + "@" + server_.Url() + "/v1"; }
  std::vector<std::string> Loaded() {
    const std::lock_guard lock(mutex_);
    return loaded_;
  }

 private:
  MockReply Answer(const MockRequest& request) {
    if (request.path != "/update_weights_from_disk") return Forward(request, model_.url());
    const std::lock_guard lock(mutex_);
    const std::string folder = json::parse(request.body).at("model_path");
    loaded_.push_back(folder +
                      (fs::exists(fs::path(folder) / "model.safetensors") ? "" : ", which is not there"));
    return JsonReply(200, R"({"success": true})");
  }

  local::ModelProcess model_;
  std::mutex mutex_;
  std::vector<std::string> loaded_;
  MockServer server_;
};

// kevin-model, started by a thread of its own: a process ends with the thread that started it.
class OwnModel {
 public:
  explicit OwnModel(const fs::path& folder)
      : thread_([this, folder](const std::stop_token& end) { Run(folder, end); }) {
    url_ = started_.get_future().get();
  }
  const std::string& url() const { return url_; }

 private:
  void Run(const fs::path& folder, const std::stop_token& end) {
    try {
      const local::ModelProcess model(ModelProgram(), {folder.string(), "--device=cpu"},
                                      [](const std::string&) {});
      started_.set_value(model.url());
      std::mutex mutex;
      std::unique_lock lock(mutex);
      std::condition_variable_any().wait(lock, end, [] { return false; });
    } catch (const Error&) {
      started_.set_exception(std::current_exception());
    }
  }

  std::promise<std::string> started_;
  std::string url_;
  std::jthread thread_;
};

// As vLLM with VLLM_SERVER_DEV_MODE=1: serves `folder`, which it reads when it is first asked and again upon reload_weights.
class Vllm {
 public:
  explicit Vllm(fs::path folder)
      : folder_(std::move(folder)), server_([this](const MockRequest& request) { return Answer(request); }) {}

  std::string Spec() const { return "openai:" + folder_.filename().string() + "@" + server_.Url() + "/v1"; }
  std::vector<std::string> Calls() {  // for new weights, in order
    const std::lock_guard lock(mutex_);
    return calls_;
  }

 private:
  MockReply Answer(const MockRequest& request) {
    if (request.path == "/update_weights_from_disk") return JsonReply(404, R"({"detail": "Not Found"})");
    const bool reloads = request.path == "/collective_rpc", forgets = request.path == "/reset_prefix_cache";
    std::unique_lock lock(mutex_);
    if (reloads || forgets) calls_.push_back(request.path + " " + request.body);
    if (reloads || !model_) model_ = std::make_shared<OwnModel>(folder_);
    if (reloads) return JsonReply(200, R"({"results": [null]})");
    if (forgets) return {200, {}, {}, MockReply::End::kWhole};
    const std::shared_ptr<OwnModel> model = model_;
    lock.unlock();
    return Forward(request, model->url());
  }

  const fs::path folder_;
  std::mutex mutex_;
  std::shared_ptr<OwnModel> model_;
  std::vector<std::string> calls_;
  MockServer server_;
};

TEST_CASE("vLLM reads the run's folder again after each step, and samples from what was learnt") {
  const World world("cpp", {1});  // a third of the answers
  Vllm vllm(world / "run/sampler");
  const int code = world.Train(
      "--suite level1/19 --turns 1 --keep-flat --samples 16 --steps 2 --learning-rate 3e-4 --max-grad-norm 0.5 "
      "--constant-tokens 1 --context 2000 --micro-tokens 500 --out run --sampler " +
      vllm.Spec());
  INFO(world.Errors());
  REQUIRE(code == 0);
  CHECK(world.Errors().find("weights go to the server by vLLM's reload_weights") != std::string::npos);
  CHECK(world.Errors().find("(2000 tokens by the longest sample)") != std::string::npos);
  CHECK(world.Errors().find("trains on cpu, samples from openai:sampler@http") != std::string::npos);
  const std::vector<std::string> calls = vllm.Calls();
  REQUIRE(calls.size() == 6);  // before the first step, after each
  for (size_t i = 0; i < calls.size(); i += 2) {
    CHECK(calls[i] == R"(/collective_rpc {"method":"reload_weights"})");
    CHECK(calls[i + 1] == "/reset_prefix_cache {}");
  }
  const std::vector<json> steps = world.Events("step");
  REQUIRE(steps.size() == 2);
  for (const json& step : steps) {
    CHECK((step.at("samples") == 16 && step.at("staleness") == 0.0));
    CHECK(step.at("policy_shift").get<double>() > 1e-6);
    CHECK(step.at("delta_logprob").get<double>() < 1e-4);  // the server has the weights of the step before
  }
  CHECK(ReadAll(world / "run/sampler/model.safetensors") == ReadAll(world / "run/model/model.safetensors"));
  // What the server takes is no checkpoint, which only the last step is here.
  CHECK(std::distance(fs::directory_iterator(world / "run/checkpoints"), fs::directory_iterator()) == 1);
  CHECK(!fs::exists(world / "run/sampler/trainer.json"));
  CHECK(!fs::exists(world / "run/sampler.part"));
}

TEST_CASE("a server samples and takes the weights after each step; one that does not is found out") {
  const World world;
  // As in a cache of Hugging Face's: the files are links.
  fs::rename(world / "model", world / "blobs");
  fs::create_directory(world / "model");
  for (const fs::directory_entry& file : fs::directory_iterator(world / "blobs"))
    fs::create_symlink(fs::path("../blobs") / file.path().filename(),
                       world / "model" / file.path().filename());
  ServerOfOldWeights server(world / "model");
  const std::string served = "--suite level1/19 --turns 1 --keep-flat --sampler " + server.Spec();
  // Of two ranks the first one gives it the weights.
  const std::string two = served + " --samples 8 --steps 2 --learning-rate 1e-12 --out run";
  const pid_t ranks[2] = {StartCommand(RankOfTwo(0, 6021) + world.Command(two)),
                          StartCommand(RankOfTwo(1, 6021) + world.Command(two))};
  const int codes[2] = {CodeWithin(ranks[0], std::chrono::seconds(120)),
                        CodeWithin(ranks[1], std::chrono::seconds(120))};
  INFO(world.Errors());
  REQUIRE((codes[0] == 0 && codes[1] == 0));
  CHECK(world.Errors().find("SGLang's update_weights_from_disk") != std::string::npos);
  const std::vector<std::string> loaded = server.Loaded();
  REQUIRE(loaded.size() == 3);  // before the first step, after each
  for (const std::string& folder : loaded) CHECK(folder == (world / "run/sampler").string());
  const std::vector<json> steps = world.Events("step");
  REQUIRE(steps.size() == 2);
  for (const json& step : steps) CHECK((step.at("samples") == 8 && step.at("staleness") == 0.0));
  Database database(world / "kevin.db", Database::Access::kReadOnly, 5000);
  CHECK(database.QueryInteger(
            "SELECT count(*) FROM turns WHERE model LIKE '%@1' AND weights_hash LIKE '%@1'") == 8);
  CHECK(database.QueryInteger(
            "SELECT count(*) FROM turns WHERE temperature = 0.9 AND top_k = 0 AND min_p = 0") == 16);

  // Learns a lot, and the server answers from the old weights.
  CHECK(world.Train(
            served +
            " --samples 16 --steps 8 --learning-rate 0.3 --max-grad-norm 0 --constant-tokens 1 --out far "
            "--db far.db") == 4);
  INFO(world.Errors());
  CHECK(world.Errors().find("log-probabilities of sampler and trainer differ by") != std::string::npos);
  const auto expect = [&](const std::string& part, const std::string& arguments) {
    CHECK(world.Train("--suite level1/19 --out r " + arguments) == 2);
    INFO(arguments + ": " + world.Errors());
    CHECK(world.Errors().find(part) != std::string::npos);
  };
  expect("leave out --staleness", "--staleness 1 --sampler " + server.Spec());
  expect("--lora trains adapters", "--lora 2 --sampler " + server.Spec());
  expect("not a server that takes new weights", "--sampler anthropic:m");
}

}  // namespace
}  // namespace kevin
