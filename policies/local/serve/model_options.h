#pragma once
// The options of `kevin-model` as plain data, and the command-line options that `kevin serve-model` and
// `kevin-model` share. No torch: programs that only start the server include it.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace kevin::local {

struct RunnerOptions {
  std::filesystem::path folder;
  std::string device = "auto";        // "cpu", "cuda", "cuda:1"; auto: the first GPU, else the CPU
  std::string dtype = "auto";         // "bfloat16", "float16", "float32"; auto: as stored; float32 on a CPU
  std::string quantization = "none";  // "int8", "nf4", "nf4-double"
  int context_tokens = 0;             // limit of prompt and answer; 0: the model's, or what fits
};

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  int port = 8000;          // 0: any free one
  std::string unix_socket;  // path; not empty: replaces host and port. Readable by its owner only.

  // Who may ask (request_gate.h).
  std::vector<std::string> allowed_hosts;  // names of the server in the Host header, beside its own
  std::filesystem::path api_keys;          // file with a key a line; empty: no key is asked for
  bool no_authentication = false;          // an address beyond this machine is allowed without keys

  // What a client may use. A place of an idle connection goes to one that waits.
  int connections = 256;                // at once; further ones wait
  size_t header_bytes = 64 << 10;       // of a request
  size_t body_bytes = 16 << 20;         // of a request
  size_t total_body_bytes = 256 << 20;  // of all requests in progress
  double header_s = 10, body_s = 60;    // until they have arrived; then the connection is closed
  double idle_s = 30;                   // between two requests
  double write_s = 30;                  // for the client to take a piece of the reply
  double linger_s = 1;                  // for a refused client to read why
};

inline constexpr int kPrivateConnections = 1024;  // of a socket that only Kevin's own processes use

struct ProgramOptions {
  RunnerOptions runner;
  HttpServerOptions http;
  std::string name;             // of the model; empty: the name of the folder
  bool private_socket = false;  // a Unix socket in a private folder; both are removed at the end
  int ready_fd = 1;             // receives one JSON line when the server is ready, see ModelProcess
  uint64_t seed = 0;            // of requests without one
};

}  // namespace kevin::local

namespace kevin {

// Adds the shared options to a command.
void AddModelOptions(CLI::App* command, local::ProgramOptions* options);

}  // namespace kevin
