#pragma once
// `local:DIR`: a model's folder as a policy. Starts a kevin-model of its own and talks to it with the same
// client as to any other server, so that this process needs no torch.

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "policies/local/serve/model_process.h"
#include "policies/remote/remote_policy.h"

namespace kevin::local {

// local:DIR, local:DIR?device=cuda:1&quantization=int8. Options are kevin-model's, without their dashes:
// device, dtype, quantization, max-context, seed.
struct LocalSpec {
  std::filesystem::path folder;
  std::map<std::string, std::string> options;
  std::string Text() const;  // parses to the same value, from any working folder
};

bool IsLocalSpec(const std::string& spec);
// Throws Error(kBadRequest) for an unknown option or a missing folder.
LocalSpec ParseLocalSpec(const std::string& spec);

// Client settings for a kevin-model that returns what training needs: token ids, and log-probabilities under
// the sampling distribution. `client`: all other settings.
RemoteOptions LocalClientOptions(const std::string& model, const std::string& url, RemoteOptions client);

class LocalPolicy : public Policy {
 public:
  // `client`: time-outs and extra sampling fields; address and model are filled in here. Starts `program` and
  // waits until it is ready, see ModelProcess.
  LocalPolicy(const LocalSpec& spec, const std::filesystem::path& program, RemoteOptions client,
              const ModelProcess::OnLine& on_line);

  // Throws the process's permanent failure once it has ended.
  Completion Complete(const Request& request, const CancelToken* cancel, const OnText& on_text) override;
  std::string Name() const override { return name_; }
  std::string ComputesOn() const override { return process_.device(); }
  bool AnswersTogether() const override { return true; }

  RemotePolicy& client() { return *client_; }
  const RemoteOptions& client_options() const { return options_; }
  ModelProcess& process() { return process_; }

 private:
  const std::string name_;
  ModelProcess process_;
  const RemoteOptions options_;
  const std::unique_ptr<RemotePolicy> client_;
};

}  // namespace kevin::local
