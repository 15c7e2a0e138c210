#include "policies/local/serve/model_options.h"

#include <CLI/CLI.hpp>

namespace kevin {

void AddModelOptions(CLI::App* command, local::ProgramOptions* o) {
  command->add_option("folder", o->runner.folder, "config.json, tokenizer.json, *.safetensors")->required();
  CLI::Option* port = command->add_option("--port", o->http.port, "TCP port; 0: any that is free")
                          ->check(CLI::Range(0, 65535))
                          ->capture_default_str();
  CLI::Option* host = command->add_option("--host", o->http.host, "Who else may ask: 0.0.0.0 is everybody")
                          ->capture_default_str();
  command->add_option("--socket", o->http.unix_socket, "A Unix socket instead, its owner's alone")
      ->excludes(port)
      ->excludes(host);
  command->add_option("--device", o->runner.device, "cpu, cuda or cuda:N; auto: the first GPU, else the CPU")
      ->capture_default_str();
  command->add_option("--dtype", o->runner.dtype, "What is computed in; auto: as stored, on a CPU float32")
      ->check(CLI::IsMember({"auto", "bfloat16", "float16", "float32"}))
      ->capture_default_str();
  command->add_option("--quantization", o->runner.quantization, "Of the weights")
      ->check(CLI::IsMember({"none", "int8", "nf4", "nf4-double"}))
      ->capture_default_str();
  command
      ->add_option("--max-context", o->runner.context_tokens,
                   "The most tokens of prompt and answer (default: the model's, or what fits)")
      ->check(CLI::PositiveNumber);
  command->add_option("--seed", o->seed, "Where the seeds of requests that have none begin")
      ->capture_default_str();
  command->add_option("--name", o->name, "What clients call the model (default: the folder's name)");
  command->add_option("--connections", o->http.connections, "Answered at once; more wait")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

}  // namespace kevin
