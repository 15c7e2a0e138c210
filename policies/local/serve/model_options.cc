#include "policies/local/serve/model_options.h"

#include <CLI/CLI.hpp>

namespace kevin {

void AddModelOptions(CLI::App* command, local::ProgramOptions* o) {
  command->add_option("folder", o->runner.folder, "config.json, tokenizer.json, *.safetensors")->required();
  CLI::Option* port = command->add_option("--port", o->http.port, "TCP port; 0: any free one")
                          ->check(CLI::Range(0, 65535))
                          ->capture_default_str();
  CLI::Option* host =
      command
          ->add_option("--host", o->http.host, "Address to listen on; 0.0.0.0: all networks, with --api-keys")
          ->capture_default_str();
  command
      ->add_option(
          "--allow-host", o->http.allowed_hosts,
          "A name of this server in the Host header, beside localhost, its address and the machine's name "
          "(may be repeated)")
      ->allow_extra_args(false);
  CLI::Option* keys = command->add_option(
      "--api-keys", o->http.api_keys,
      "File with the keys of clients, one a line; they send Authorization: Bearer KEY (default: none is asked for)");
  command
      ->add_flag("--no-authentication", o->http.no_authentication,
                 "Other machines may use the model without a key, with a --host beyond this machine")
      ->excludes(keys);
  command->add_option("--socket", o->http.unix_socket, "A Unix socket instead, readable by its owner only")
      ->excludes(port)
      ->excludes(host);
  command->add_option("--device", o->runner.device, "cpu, cuda or cuda:N; auto: the first GPU, else the CPU")
      ->capture_default_str();
  command->add_option("--dtype", o->runner.dtype, "Type of computation; auto: as stored, float32 on a CPU")
      ->check(CLI::IsMember({"auto", "bfloat16", "float16", "float32"}))
      ->capture_default_str();
  command->add_option("--quantization", o->runner.quantization, "Quantization of the weights")
      ->check(CLI::IsMember({"none", "int8", "nf4", "nf4-double"}))
      ->capture_default_str();
  command
      ->add_option("--max-context", o->runner.context_tokens,
                   "Limit of tokens of prompt and answer (default: the model's, or what fits)")
      ->check(CLI::PositiveNumber);
  command->add_option("--seed", o->seed, "First seed of requests without one")->capture_default_str();
  command->add_option("--name", o->name, "Name of the model for clients (default: the folder's name)");
  command->add_option("--connections", o->http.connections, "Connections at once; further ones wait")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

}  // namespace kevin
