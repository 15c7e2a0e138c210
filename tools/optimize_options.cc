#include "tools/optimize_options.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "agent/json.h"
#include "env/error.h"
#include "env/problem/precision.h"
#include "env/process/files.h"
#include "tools/command_line.h"
#include "tools/export/torch_package.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOptimizeExamples = R"(Examples:
  kevin optimize net.py -o net_fast.py             class Model of net.py (or its only class); inputs from its get_inputs()
  kevin optimize net.py:Block -o block.py          another class or a function of the file
  kevin optimize net.py:Block --example-inputs x.pt -o block.py
                                                   its arguments: torch.save([tensor, ...], FILE) in order, or
                                                   torch.save({"name": tensor, ...}, FILE) by name
  kevin optimize net.py:Block --init dim=512 --init heads=8 -o block.py
                                                   the constructor's arguments; else from get_init_inputs()
  kevin optimize net.py --plan-only                stop after the import and say what would be tried
  kevin optimize net.py --dynamic x.1=1..2048 -o net_fast.py
                                                   dimension 1 of x varies: one kernel for each of several shapes
  kevin optimize net.py --allow-read ~/weights -o net_fast.py
                                                   the import may read more than the folder of the file; --trust: all
  kevin optimize net.py --turns 20 --policy openai:gpt-5-mini --yes -o net_fast.py

Imports the module (in evaluation mode), lets the policy write kernels for the shapes of its inputs, measures the best one
again, and writes it as a drop-in: `from net_fast import Model` has the same constructor and state_dict. The kernel runs
where shapes, dtype and device are those it was made for and no gradients are needed; everything else goes to the original,
with one warning. The file is proved before it is kept: outputs, opcheck, torch.compile(fullgraph=True). Where nothing was
faster, nothing is written. Ctrl-C keeps the turns that are done; the same command goes on. The file is
imported in a sandbox (kevin import --help), and kernels are tried in one; THE PROOF RUNS BOTH AS YOU WOULD.)";

// "FILE.py:Class" -> the file and the class; empty: the file's own choice.
std::pair<std::string, std::string> FileAndClass(const std::string& target) {
  const size_t colon = target.rfind(".py:");
  if (colon == std::string::npos) return {target, ""};
  return {target.substr(0, colon + 3), target.substr(colon + 4)};
}

// --init NAME=VALUE, a value of JSON or else a text, as one JSON object.
std::string InitText(const std::vector<std::string>& init) {
  if (init.empty()) return "";
  Json object = Json::object();
  for (const std::string& item : init) {
    const size_t equals = item.find('=');
    if (equals == std::string::npos || equals == 0)
      throw Error(ExitCode::kBadRequest, fmt::format("--init {}: it is not NAME=VALUE", item),
                  "for example --init dim=512");
    const Json value = Json::parse(item.substr(equals + 1), nullptr, false);
    object[item.substr(0, equals)] = value.is_discarded() ? Json(item.substr(equals + 1)) : value;
  }
  return object.dump();
}

}  // namespace

OptimizeImport ImportOf(const OptimizeOptions& options) {
  OptimizeImport request;
  const auto [file, class_name] = FileAndClass(options.target);
  std::error_code error;
  if (!fs::is_regular_file(file, error)) {
    throw Error(ExitCode::kBadRequest,
                fmt::format("{}: {}", file, error ? error.message() : "not a regular file"),
                "kevin optimize FILE.py or FILE.py:Class");
  }
  if (options.output.empty() && !options.plan_only)
    throw Error(ExitCode::kBadRequest, "optimize: no place for the result", "-o NAME.py; or --plan-only");
  if (!options.output.empty() && fs::path(options.output).extension() != ".py")
    throw Error(ExitCode::kBadRequest, fmt::format("-o {}: it does not end in .py", options.output),
                "-o NAME.py");
  if (!options.output.empty()) RequireFreeOutput(options.output, options.force);
  request.job.file = fs::absolute(file).string();
  request.job.any_class = true;
  request.job.class_name = class_name;
  request.job.example_inputs =
      options.example_inputs.empty() ? "" : fs::absolute(options.example_inputs).string();
  request.job.init = InitText(options.init);
  request.job.dynamic = DynamicRanges(options.dynamic);
  request.job.eval = true;
  // As it is deployed: where it asks for a type, as a norm in float32 does, that stays.
  if (const Precision precision = PrecisionNamed(options.device.precision); precision != Precision::kFp32)
    request.job.dtype = DTypeName(DTypeOf(precision));
  request.target = MakeImportTarget(
      "mine", "", fs::path(file).stem().string() + (class_name.empty() ? "" : "_" + class_name));
  request.target.from = file;
  return request;
}

void AddOptimizeOptions(CLI::App* command, OptimizeOptions* options) {
  OptimizeOptions& o = *options;
  command->footer(kOptimizeExamples);
  command->add_option("module", o.target, "FILE.py or FILE.py:NAME, a class or function of the file")
      ->required();
  command->add_option("-o,--output", o.output,
                      "The drop-in to write, NAME.py; its kernel goes to NAME_kernel beside it");
  command->add_option("--example-inputs", o.example_inputs, "Its arguments: a file that torch.save wrote");
  command->add_option("--init", o.init, "NAME=VALUE for the constructor; repeatable")
      ->allow_extra_args(false);
  command->add_option("--turns", o.turns, "How many turns in all")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  command
      ->add_option("--policy", o.policy,
                   "search, openai:MODEL, openai-responses:MODEL, anthropic:MODEL or local:DIR")
      ->capture_default_str();
  command->add_flag("--plan-only", o.plan_only, "Import, then say what would be tried");
  command->add_flag("--no-compile", o.no_compile, "Do not time torch.compile of the original");
  command->add_option("--seed", o.seed, "The seed of the policy's choices")
      ->check(WhyNotWhole)
      ->capture_default_str();
  command->add_option("--limit", o.limit_s, "Seconds for the import")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  AddDynamicOption(command, &o.dynamic);
  AddImportSandboxOptions(command, &o.sandbox);
  AddTuneOption(command, &o.tune);
  AddDeviceOptions(command, &o.device);
  AddPolicyOptions(command, &o.model);
  AddPrivacyOptions(command, &o.privacy);
  command->add_option("--db", o.database, "The database")->capture_default_str();
  command->add_option("--out", o.folder, "Where all kernels are written")->capture_default_str();
  command->add_flag("--force", o.force, "Replace the output if it exists");
  command->add_flag("--json", o.json, "One JSON object a line on stdout, all else on stderr");
}

}  // namespace kevin
