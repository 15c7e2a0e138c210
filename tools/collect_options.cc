#include "tools/collect_options.h"

#include "tools/command_line.h"

namespace kevin {
namespace {

constexpr const char* kCollectExamples = R"(Examples:
  kevin collect --suite level1 --episodes 16 --turns 8       overnight; repeated, it continues after a stop
  kevin collect --suite level1/1-20,level1/40 --policy search --policy replay:01K9J4
  kevin collect --suite core --hours 8 --device all          all GPUs; 8 hours at most
  kevin collect --suite core --policy openai:gpt-5-mini --prices prices.json --dollars 20
  kevin collect --suite core --policy openai:my-model --base-url http://127.0.0.1:8000/v1 --temperature 0.9
  kevin collect --suite core --tune 0                        take the first value of every knob, try no others
  kevin collect --suite level2 --memory level1.db            begin with what was best on similar problems
  kevin collect --suite level1 --db postgresql://kevin@db/kevin
  kevin collect --join 01K9J4 --db postgresql://kevin@db/kevin
                                                             join the run from another machine

Ctrl-C once finishes the turns in progress, twice discards them. In both cases the same command continues the
run later.)";

constexpr const char* kEvalExamples = R"(Examples:
  kevin eval --policy search                  the list "core", 4 episodes of 8 turns each
  kevin eval --suite level1 --policy search --episodes 16
  kevin eval --policy anthropic:claude-sonnet-4-5 --prices prices.json --dollars 20

As kevin collect: a new run, unless one with the same request is unfinished.)";

}  // namespace

void AddCollectOptions(CLI::App* command, CollectOptions* options) {
  CollectOptions& o = *options;
  command->footer(o.command == "eval" ? kEvalExamples : kCollectExamples);
  CLI::Option* suite = command->add_option(
      "--suite", o.suite, "Problems: level1, level1/1-20, ids, a list (core), a file; commas join");
  if (!o.suite.empty()) suite->capture_default_str();
  CLI::Option* policy =
      command
          ->add_option(
              "--policy", o.policies,
              "search, openai:MODEL, openai-responses:MODEL, anthropic:MODEL, local:DIR or replay:EPISODE; "
              "repeatable (default search)")
          ->allow_extra_args(false);
  CLI::Option* episodes =
      command->add_option("--episodes", o.spec.episodes, "Episodes of each problem and policy")
          ->check(CLI::Range(1, 100000))
          ->capture_default_str();
  CLI::Option* turns = command->add_option("--turns", o.spec.turns, "Turns of each episode")
                           ->check(CLI::Range(1, 10000))
                           ->capture_default_str();
  CLI::Option* seed =
      command->add_option("--seed", o.spec.seed, "The seed from which each episode gets its own")
          ->check(WhyNotWhole)
          ->capture_default_str();
  CLI::Option* prompts = AddPromptsOption(command, &o.spec.prompts);
  CLI::Option* note = command->add_option("--note", o.spec.note, "A hint for the policy, in every prompt");
  CLI::Option* size = command->add_option("--size", o.spec.workload.size,
                                          "Size set: small or full (default: small on a CPU, full on a GPU)");
  CLI::Option* inputs =
      command
          ->add_option("--inputs", o.spec.workload.inputs, "kernelbench: its uniform inputs instead of ours")
          ->check(CLI::IsMember({"default", "kernelbench"}))
          ->capture_default_str();
  command->add_option("--parallel", o.parallel, "Episodes at once (default: 2 on a CPU, 8 a GPU)")
      ->check(CLI::Range(1, 4096));
  AddPolicyOptions(command, &o.model, BudgetScope::kOfCommand);
  AddPrivacyOptions(command, &o.privacy);
  AddCollectBudgetOptions(command, &o.budget);
  CLI::Option* tune = AddTuneOption(command, &o.tune);
  // An evaluation of policies knows no answers of other runs.
  CLI::Option* memory = o.command == "eval" ? nullptr : AddMemoryOption(command, &o.spec.memory);
  CLI::Option* diagnose = AddDiagnoseOption(command, &o.diagnose, "turns that lead or may");
  CLI::Option* kind = AddKindOption(command, &o.spec.kind);
  AddDeviceOptions(command, &o.device);
  AllowManyDevices(command, &o.devices);
  CLI::Option* new_run =
      command->add_flag("--new-run", o.new_run, "Start another run even if one is unfinished");
  CLI::Option* run = command->add_option(
      "--run,--join", o.join,
      "Work on this run (its id or a unique beginning), beside other processes or after them");
  for (CLI::Option* option : {suite, policy, episodes, turns, seed, prompts, note, size, inputs, tune,
                              diagnose, kind, new_run, command->get_option("--tf32"),
                              command->get_option("--precision"), command->get_option("--base-url")}) {
    option->excludes(run);
  }
  if (memory != nullptr) memory->excludes(run);
  command
      ->add_option("--lease", o.rollout.lease_s,
                   "Seconds after which the work of a silent process is taken over")
      ->check(CLI::Range(1.0, 86400.0))
      ->capture_default_str();
  command
      ->add_option("--max-kills", o.rollout.most_kills,
                   "Give an episode up after it ended this many processes (a crash, a kill)")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--db", o.database, "The database: a file, or postgresql://USER@HOST/NAME")
      ->capture_default_str();
  command->add_option("--out", o.output, "Where kernels are written")->capture_default_str();
  command->add_flag("--json", o.json, "One JSON object a line on stdout, all else on stderr");
}

}  // namespace kevin
