// `kevin serve-model`: replaces itself by kevin-model, which links torch.

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "env/error.h"
#include "policies/local/serve/model_options.h"
#include "tools/commands.h"
#include "tools/policies.h"

namespace kevin {
namespace {

constexpr const char* kServeModelExamples = R"(Examples:
  kevin serve-model models/Qwen2.5-Coder-7B --port 8000
  kevin serve-model models/tiny --device cpu --socket /run/user/1000/tiny.sock
  kevin serve-model models/tiny --host 0.0.0.0 --api-keys keys.txt --allow-host gpu1.example.org
                                               for other machines, with a key a line in keys.txt (chmod 600)
  kevin run --problem level1/19 --policy openai:tiny --base-url http://127.0.0.1:8000/v1 --token-ids chat

Without --host only this machine reaches the server. Pages in a browser never do: the Host header must name the
server, an Origin header must be absent, and a POST must be application/json. --api-keys is for keys that come in;
--key-file of the other commands is the key that they send. 401 answers a missing or unknown key.
Exit codes: 2 an unusable option, file of keys or address; 3 the model does not fit; 4 the model failed.

No answer is computed while a program of Kevin times a kernel on the model's device; answers in progress pause.
Chat completions, completions, /tokenize, /detokenize, /health and /metrics as OpenAI and vLLM have them.
kevin run --policy local:DIR does all this by itself.)";

// What was given, for kevin-model, which has the same options.
std::vector<std::string> WordsFor(const CLI::App& command) {
  std::vector<std::string> words;
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() == 0) continue;
    const std::string name = option->get_name();
    for (const std::string& value : option->results())
      words.push_back(name.starts_with('-') ? name + "=" + value : value);
  }
  return words;
}

int Serve(const CLI::App& command) {
  const std::string program = ModelProgram().string();
  std::vector<std::string> all = WordsFor(command);
  all.insert(all.begin(), program);
  std::vector<char*> pointers;
  for (std::string& word : all) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execv(program.c_str(), pointers.data());
  throw Error(ExitCode::kMachine, fmt::format("{}: {}", program, std::strerror(errno)),
              "tools/setup.sh builds it");
}

}  // namespace

void AddServeModelCommand(CLI::App& app, Action* action) {
  auto options = std::make_shared<local::ProgramOptions>();
  CLI::App* serve =
      app.add_subcommand("serve-model", "Serve a language model's folder, as OpenAI's API has it");
  serve->footer(kServeModelExamples);
  AddModelOptions(serve, options.get());
  serve->callback([serve, options, action] { *action = [serve, options] { return Serve(*serve); }; });
}

}  // namespace kevin
