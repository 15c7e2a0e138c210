#pragma once
// The options of `kevin-model` as plain data, and the command-line options that `kevin serve-model` and `kevin-model`
// share. No torch: programs that only start the server include it.

#include <cstdint>
#include <filesystem>
#include <string>

namespace CLI {
class App;
}

namespace kevin::local {

struct RunnerOptions {
  std::filesystem::path folder;
  std::string device = "auto";  // "cpu", "cuda", "cuda:1"; auto: the first GPU, else the CPU
  std::string dtype = "auto";   // "bfloat16", "float16", "float32"; auto: as stored, and float32 on a CPU
  std::string quantization = "none";  // "int8", "nf4"
  int context_tokens = 0;  // the most that prompt and answer may have; 0: the model's, or what fits
};

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  int port = 8000;               // 0: any that is free
  std::string unix_socket;       // path; not empty: instead of host and port. Its owner's alone.
  size_t body_bytes = 64 << 20;  // of a request
  int connections = 1024;        // at once; more wait to be taken
};

struct ProgramOptions {
  RunnerOptions runner;
  HttpServerOptions http;
  std::string name;             // of the model; empty: the folder's
  bool private_socket = false;  // a Unix socket in a folder of its own, both removed at the end
  int ready_fd = 1;             // gets one JSON line when requests are taken, see ModelProcess
  uint64_t seed = 0;            // of requests that have none
};

}  // namespace kevin::local

namespace kevin {

void AddModelOptions(CLI::App* command, local::ProgramOptions* options);

}  // namespace kevin
