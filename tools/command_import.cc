#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "agent/episode.h"
#include "agent/events.h"
#include "agent/json.h"
#include "agent/machine.h"
#include "agent/terminal.h"
#include "env/error.h"
#include "env/graph_source.h"
#include "env/problem/problem.h"
#include "policies/search/search_policy.h"
#include "tools/commands.h"
#include "tools/importer.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

constexpr const char* kImportExamples = R"(Examples:
  kevin import relu.py                                 a file like KernelBench's: class Model, get_inputs, get_init_inputs
  kevin import relu.py --suite mine --name fast_relu   then: kevin run --problem mine/fast_relu
  kevin import KernelBench --suite kb                  a whole checkout; ids kb/level1/19; then: kevin collect --suite kb
  kevin import KernelBench --suite kb --level 1        one level of it
  kevin import --function ops.py:rotary --example-inputs rotary.pt
                                                       a function or torch.nn.Module of yours (module:name or
                                                       FILE.py:name) and its arguments, torch.save([tensor, ...], FILE)
                                                       in order or torch.save({"name": tensor, ...}, FILE) by name
  kevin import net.py --allow-read ~/weights           the file may read more than the folder it lies in; --trust: all
  kevin import net.py --eval                           the module in evaluation mode: no dropout, running statistics
  kevin import big.py --small batch_size=4,dim=512     the size set for CPUs, by the names that `kevin problems` shows
  kevin import big.py --shape mine:dim=4096:3 --shape mine:dim=1001
                                                       a size set with two shapes, the first counts three times
  kevin import net.py --dynamic x.1=1..2048            dimension 1 of x varies: shapes of the range are a size set, dynamic
                                                       (or dynamic_shapes = {"x": {1: Dim("t", min=1, max=2048)}} in net.py)

The module is traced once by a Python with torch 2.11 (python3, or what KEVIN_PYTHON names); afterwards no Python is
needed. THE FILE IS RUN IN A SANDBOX: without network and GPU, and of your files it reads those of its own folder (in
your home folder or /tmp itself the file alone), read-only. --allow-read PATH shows it more, --trust runs it as you run it yourself.
Weights become parameters of the problem, drawn anew from the initialiser found for them; buffers that hold tables or masks keep their values. How
inputs are drawn follows from get_inputs. Where wrong answers would pass on such inputs, harder ones are tried
(zero-mean, scaled, heavy-tailed, then around 64) and kept if those reject them; --distribution chooses. What stays easy to fool is
imported as inadmissible: no suite has it. Importing again replaces. Problems lie in $XDG_DATA_HOME/kevin/problems.

What the file gives is one shape, size set `full`. --shape adds others, by the names that `kevin problems` shows, to a
set of your own: a candidate has to be correct at all of them (kevin run --size SET). Each is compared with the module;
one that its forward does not take, or that the trace has as a constant, is refused.)";

struct ImportOptions {
  std::string path, suite, name, function, example_inputs, distribution, small;
  std::vector<std::string> shapes, dynamic;
  bool eval = false, json = false, no_admit = false;
  int level = 0, threads = 0;
  double limit_s = 600;
  ImportSandbox sandbox;
};

// `option` is for messages: "--small batch_size=4,dim=512".
std::map<std::string, int64_t> SizesOf(const std::string& text, const std::string& option) {
  std::map<std::string, int64_t> sizes;
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find(',', start), text.size());
    const std::string part = text.substr(start, end - start);
    const size_t equals = part.find('=');
    const std::string number = equals == std::string::npos ? "" : part.substr(equals + 1);
    if (equals == 0 || number.empty() || number.size() > 12 ||
        number.find_first_not_of("0123456789") != std::string::npos || number[0] == '0') {
      throw Error(ExitCode::kBadRequest, fmt::format("{}: '{}' is not NAME=NUMBER", option, part),
                  "for example batch_size=4,dim=512");
    }
    sizes[part.substr(0, equals)] = std::stoll(number);
    start = end + 1;
  }
  return sizes;
}

// "SET:NAME=NUMBER,...[:WEIGHT]".
ImportShape ShapeOf(const std::string& text) {
  const std::string option = "--shape " + text;
  const size_t colon = text.find(':'),
               weight = text.find(':', colon == std::string::npos ? colon : colon + 1);
  ImportShape shape;
  shape.set = text.substr(0, colon);
  const bool is_name = !shape.set.empty() && shape.set != "small" && shape.set != "full" &&
                       std::all_of(shape.set.begin(), shape.set.end(), [](unsigned char c) {
                         return std::isalnum(c) != 0 || c == '_' || c == '-';
                       });
  if (colon == std::string::npos || !is_name) {
    throw Error(ExitCode::kBadRequest, option + ": it names no size set of your own",
                "for example --shape mine:batch_size=64,dim=4096:3, once for each shape");
  }
  shape.symbols =
      SizesOf(text.substr(colon + 1, weight == std::string::npos ? weight : weight - colon - 1), option);
  if (weight == std::string::npos) return shape;
  const std::string number = text.substr(weight + 1);
  char* end = nullptr;
  shape.weight = std::strtod(number.c_str(), &end);
  if (number.empty() || *end != '\0' || !std::isfinite(shape.weight) || shape.weight <= 0) {
    throw Error(ExitCode::kBadRequest, fmt::format("{}: '{}' is no weight", option, number),
                "a number above 0, for example 2.5");
  }
  return shape;
}

std::vector<ImportShape> GivenShapes(const std::vector<std::string>& texts) {
  std::vector<ImportShape> shapes;
  for (const std::string& text : texts) shapes.push_back(ShapeOf(text));
  return shapes;
}

std::vector<ImportTarget> Targets(const ImportOptions& options) {
  const std::string suite = options.suite.empty() ? "mine" : options.suite;
  CheckSuiteName(suite);
  if (!options.function.empty()) {
    const size_t colon = options.function.rfind(':');
    return {MakeImportTarget(suite, "",
                             options.name.empty() ? options.function.substr(colon + 1) : options.name)};
  }
  if (options.path.empty()) {
    throw Error(ExitCode::kBadRequest, "import: nothing given to import",
                "kevin import FILE.py, or see kevin import --help");
  }
  std::error_code error;
  if (fs::is_directory(options.path, error)) {
    if (options.suite.empty())
      throw Error(ExitCode::kBadRequest, options.path + ": a folder needs a name for its problems",
                  "--suite NAME");
    return TargetsOfTree(options.path, suite, options.level);
  }
  if (!fs::is_regular_file(options.path, error)) {
    throw Error(ExitCode::kBadRequest,
                fmt::format("{}: {}", options.path, error ? error.message() : "not a regular file"),
                "give a Python file or a folder of them");
  }
  ImportTarget target = MakeImportTarget(
      suite, "", options.name.empty() ? fs::path(options.path).stem().string() : options.name);
  target.from = options.path;
  return {target};
}

std::string Summary(const ImportResult& r) {
  if (!r.imported())
    return "REFUSED: " + r.refusal + (r.next_step.empty() ? "" : "\n    next: " + r.next_step);
  std::string text;
  if (r.size.empty()) {
    text = "imported, not admitted yet: " + r.not_tried;
  } else if (!r.rejection.empty()) {
    text = fmt::format("imported as inadmissible at {}: {}", r.size, r.rejection);
  } else {
    text = fmt::format("admitted at {}: {} of {} decoys rejected", r.size, r.decoys_rejected, r.decoys);
    if (!r.hardened.empty()) text += fmt::format(" on harder inputs (on its own: {})", r.hardened);
  }
  for (const std::string& note : r.notes) text += "\n    note: " + note;
  return text;
}

Json Event(const ImportResult& r) {
  const auto or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  const std::string reason = !r.imported() ? r.refusal : r.size.empty() ? r.not_tried : r.rejection;
  return {{"event", "import"},
          {"id", r.target.id},
          {"name", r.target.name},
          {"from", or_null(r.target.from.string())},
          {"imported", r.imported()},
          {"path", r.imported() ? Json(r.target.to.string()) : Json()},
          {"admitted", r.imported() && !r.size.empty() ? Json(r.admitted()) : Json()},
          {"reason", or_null(reason)},
          {"next", or_null(r.next_step)},
          {"size", or_null(r.size)},
          {"hardened", or_null(r.hardened)},
          {"decoys", r.size.empty() ? Json() : Json(r.decoys)},
          {"decoys_rejected", r.size.empty() ? Json() : Json(r.decoys_rejected)},
          {"notes", r.notes}};
}

// Why the default policy cannot write C++ kernels for the problem, and what could; "" when it can.
std::string WhyNotSearch(const ImportTarget& target) {
  const Problem problem = LoadProblemFile(target.to);
  EpisodeOptions options;
  options.workload.size = problem.sizes.contains("small") ? "small" : "full";
  try {
    static GraphSource graphs(ProgramDirectory(), CacheDirectory());
    RequirePolicyFor(problem, *MakeSearchPolicy(), options, "cpp",
                     [&](const Problem& one, const std::string& size) { return graphs.Graph(one, size); });
    return "";
  } catch (const Error& error) {
    return fmt::format("{}\n  next: {}", error.what(), error.next_step());
  }
}

class Import {
 public:
  explicit Import(const ImportOptions& options)
      : options_(options),
        targets_(Targets(options)),
        small_(SizesOf(options.small, "--small " + options.small)),
        shapes_(GivenShapes(options.shapes)),
        dynamic_(DynamicRanges(options.dynamic)),
        progress_(stderr),
        python_([this](const std::string& phase) { progress_.Phase(label_ + "  " + phase); },
                interrupt_.flag(), options.sandbox) {
    MakeEnvironment();
  }

  int Run() {
    Importer importer(&python_, environment_.get(), why_not_);
    for (size_t i = 0; i < targets_.size(); ++i) {
      label_ = targets_.size() > 1 ? fmt::format("{}/{} {}", i + 1, targets_.size(), targets_[i].id)
                                   : targets_[i].id;
      progress_.Phase(label_);
      Report(ImportOrRefuse(importer, targets_[i]));
    }
    progress_.Phase("");
    return Finish();
  }

 private:
  void MakeEnvironment() {
    if (options_.no_admit) {
      why_not_ = "--no-admit";
      return;
    }
    try {
      environment_ = MakeCpuEnvironmentForTools(EnvironmentOptionsFor(options_.threads, "full"));
    } catch (const Error& error) {
      if (error.code() != ExitCode::kMachine) throw;
      why_not_ = error.what();
      progress_.Line(fmt::format("kevin: nothing can be admitted here: {}", why_not_));
    }
  }

  ImportJob JobFor(const ImportTarget& target) const {
    ImportJob job;
    if (!target.from.empty()) job.file = fs::absolute(target.from).string();
    job.function = options_.function;
    if (!options_.example_inputs.empty()) job.example_inputs = fs::absolute(options_.example_inputs).string();
    if (!job.function.empty()) job.folder = fs::current_path().string();
    job.eval = options_.eval;
    job.distribution = options_.distribution;
    job.small = small_;
    job.shapes = shapes_;
    job.dynamic = dynamic_;
    return job;
  }

  // A failure on one file does not end the others.
  ImportResult ImportOrRefuse(Importer& importer, const ImportTarget& target) {
    for (const ImportResult& earlier : results_) {
      if (earlier.imported() && earlier.target.id == target.id)
        return Refused(target, earlier.target.from.string() + " has the same id", "rename one of them");
    }
    try {
      return importer.Import(target, JobFor(target), options_.limit_s);
    } catch (const Error& error) {
      if (targets_.size() == 1 || error.code() == ExitCode::kInterrupted ||
          error.code() == ExitCode::kMachine)
        throw;
      return Refused(target, error.what(), error.next_step());
    }
  }

  static ImportResult Refused(const ImportTarget& target, const std::string& what,
                              const std::string& next_step) {
    ImportResult result;
    result.target = target;
    result.refusal = what;
    result.next_step = next_step;
    return result;
  }

  void Report(ImportResult result) {
    progress_.Phase("");
    if (options_.json) {
      Print(stdout, ToLine(Event(result)));
      std::fflush(stdout);
    }
    if (targets_.size() > 1 || result.imported())
      progress_.Line(fmt::format("{}  {}  {}", label_, result.target.name, Summary(result)));
    results_.push_back(std::move(result));
  }

  int Finish() const {
    size_t imported = 0, admitted = 0, written = 0;
    for (const ImportResult& result : results_) {
      imported += result.imported();
      admitted += result.admitted();
      written += targets_.size() > 1 && result.imported() && WhyNotSearch(result.target).empty();
    }
    if (targets_.size() == 1 && imported == 0) {
      throw Error(ExitCode::kBadRequest,
                  fmt::format("{}: {}", options_.function.empty() ? options_.path : options_.function,
                              results_[0].refusal),
                  results_[0].next_step);
    }
    if (!options_.json) {
      const ImportTarget& first = results_[0].target;
      if (targets_.size() == 1) {
        const std::string why_not = WhyNotSearch(first);
        PrintFormat(stdout, "{}\n{}\nkevin run --problem {}{}\n", first.id, first.to.string(), first.id,
                    why_not.empty() ? "" : " --policy openai:MODEL");
        PrintFormat(stderr, "{}\n", why_not.empty() ? "the search policy can write this problem" : why_not);
      } else {
        Print(
            stdout,
            fmt::format(
                "imported {} of {} ({} refused), {} admitted; the search policy can write {}; kevin problems lists them\n",
                imported, results_.size(), results_.size() - imported, admitted, written));
      }
    }
    return static_cast<int>(imported > 0 ? ExitCode::kDone : ExitCode::kBadRequest);
  }

  const ImportOptions& options_;
  const std::vector<ImportTarget> targets_;
  const std::map<std::string, int64_t> small_;
  const std::vector<ImportShape> shapes_;
  const std::vector<ImportRange> dynamic_;
  const InterruptGuard interrupt_;
  Progress progress_;
  std::string label_, why_not_;
  PythonImporter python_;
  std::unique_ptr<CpuEnvironment> environment_;
  std::vector<ImportResult> results_;
};

}  // namespace

void AddImportCommand(CLI::App& app, Action* action) {
  auto options = std::make_shared<ImportOptions>();
  CLI::App* command =
      app.add_subcommand("import", "Make problems of your own PyTorch modules, or of a KernelBench");
  command->footer(kImportExamples);
  CLI::Option* path =
      command->add_option("path", options->path, "A Python file, or a folder like KernelBench's");
  command->add_option("--suite", options->suite, "What the problems' ids begin with (a single one: mine)");
  command
      ->add_option("--name", options->name,
                   "The name of a single problem (default: the file's or function's)")
      ->take_last();
  CLI::Option* function =
      command->add_option("--function", options->function, "module:name or FILE.py:name instead of a file")
          ->excludes(path);
  CLI::Option* examples = command->add_option("--example-inputs", options->example_inputs,
                                              "Its arguments: a file that torch.save wrote");
  examples->needs(function);
  function->needs(examples);
  command->add_option("--level", options->level, "Only this level of a folder")->check(CLI::PositiveNumber);
  command->add_flag("--eval", options->eval,
                    "The module in evaluation mode (as KernelBench has it: in training mode)");
  command
      ->add_option("--distribution", options->distribution,
                   "The distribution of all floating-point inputs, in place of their own")
      ->check(
          CLI::IsMember({"mixture", "normal", "uniform", "uniform01", "heavy-tailed", "positive", "signs"}));
  command->add_option("--small", options->small,
                      "The sizes for CPUs, NAME=NUMBER,...; else derived where possible");
  command
      ->add_option(
          "--shape", options->shapes,
          "SET:NAME=NUMBER,...[:WEIGHT], again for each shape of a size set of your own; sizes that are "
          "left out are as given by the file")
      ->allow_extra_args(false);
  AddDynamicOption(command, &options->dynamic);
  AddImportSandboxOptions(command, &options->sandbox);
  command->add_flag("--no-admit", options->no_admit,
                    "Do not try whether wrong answers fail (kevin problems --admit)");
  command->add_option("--threads", options->threads, "Threads of admission; 0: all cores")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--limit", options->limit_s, "Seconds for tracing one file")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_flag("--json", options->json, "One JSON object for each file");
  command->callback([options, action] { *action = [options] { return Import(*options).Run(); }; });
}

}  // namespace kevin
