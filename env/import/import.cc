#include "env/import/import.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <set>
#include <thread>

#include "env/error.h"
#include "env/printable.h"
#include "env/problem/problem.h"
#include "env/process/spawn.h"

namespace kevin {

namespace fs = std::filesystem;
using nlohmann::json;

// --- Files and ids ---

namespace {

bool IsWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-'; }

// The number at the start of a name; a name without one sorts last.
int LeadingNumber(const std::string& name) {
  const bool begins = !name.empty() && std::isdigit(static_cast<unsigned char>(name[0])) != 0;
  return begins && name.find_first_not_of("0123456789") < 9 ? std::atoi(name.c_str()) : 1 << 30;
}

// "19_ReLU" -> "019_relu"
std::string FileStem(const std::string& stem) {
  std::string file;
  for (const char c : stem)
    file += IsWord(c) ? static_cast<char>(std::tolower(static_cast<unsigned char>(c))) : '_';
  const size_t digits = file.find_first_not_of("0123456789");
  if (digits == std::string::npos || file[digits] == '_') file.insert(0, digits < 3 ? 3 - digits : 0, '0');
  return file;
}

// "19_ReLU" -> "ReLU", "Gemm_Add_" -> "Gemm Add"
std::string PlainName(const std::string& stem) {
  std::string name = stem;
  const size_t digits = name.find_first_not_of("0123456789");
  if (digits != std::string::npos && digits > 0 && name[digits] == '_') name.erase(0, digits + 1);
  std::replace(name.begin(), name.end(), '_', ' ');
  while (!name.empty() && name.back() == ' ') name.pop_back();
  return name.empty() ? stem : name;
}

std::vector<fs::path> Sorted(const fs::path& folder, bool folders) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with('_') || name.starts_with('.')) continue;
    const bool wanted = folders ? entry.is_directory() && name.starts_with("level")
                                : entry.is_regular_file() && entry.path().extension() == ".py";
    if (wanted) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end(), [](const fs::path& a, const fs::path& b) {
    const std::string one = a.stem().string(), other = b.stem().string();
    return std::pair(LeadingNumber(one), one) < std::pair(LeadingNumber(other), other);
  });
  return found;
}

void AddFolder(const fs::path& folder, const std::string& suite, const std::string& level,
               std::vector<ImportTarget>* targets) {
  for (const fs::path& file : Sorted(folder, false)) {
    targets->push_back(MakeImportTarget(suite, level, file.stem().string()));
    targets->back().from = file;
  }
}

}  // namespace

void CheckSuiteName(const std::string& suite) {
  const bool is_word =
      !suite.empty() && suite.size() <= 64 && std::all_of(suite.begin(), suite.end(), IsWord);
  std::error_code none;
  const fs::path shipped = ProblemSet::DefaultDirectory();
  const bool taken =
      fs::exists(shipped / suite, none) || fs::exists(shipped / "suites" / (suite + ".txt"), none);
  if (is_word && !taken && !suite.starts_with("level") && suite[0] != '-') return;
  throw Error(
      ExitCode::kBadRequest,
      fmt::format("--suite {}: {}", suite,
                  is_word ? "Kevin's own problems have this name" : "letters, digits, - and _ make a name"),
      "choose another name, such as mine");
}

ImportTarget MakeImportTarget(const std::string& suite, const std::string& folder, const std::string& stem) {
  ImportTarget target;
  const fs::path relative = fs::path(suite) / folder / (FileStem(stem) + ".toml");
  target.id = ProblemIdOf(relative);
  target.name = PlainName(stem);
  target.to = ProblemSet::ImportedDirectory() / relative;
  return target;
}

std::vector<ImportTarget> TargetsOfTree(const fs::path& tree, const std::string& suite, int level) {
  std::vector<ImportTarget> targets;
  std::error_code none;
  const fs::path inner = tree / "KernelBench";
  for (const fs::path& folder : Sorted(fs::is_directory(inner, none) ? inner : tree, true)) {
    const std::string name = folder.filename().string();
    if (level == 0 || name == fmt::format("level{}", level)) AddFolder(folder, suite, name, &targets);
  }
  if (targets.empty() && level == 0) AddFolder(tree, suite, "", &targets);
  if (!targets.empty()) return targets;
  throw Error(ExitCode::kBadRequest,
              fmt::format("{}: no level{}/*.py in this folder", tree.string(),
                          level == 0 ? "*" : std::to_string(level)),
              "give a checkout of KernelBench, a folder with the same layout, or a folder of .py files");
}

// --- Python's description of a module ---

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kStopLook_s = 0.2;
constexpr double kStartLimit_s = 60;  // for the import of torch, in processor time

// Whether it is the home folder or one above it: then it holds what a sandbox hides.
bool HoldsHome(const fs::path& folder) {
  const char* home = std::getenv("HOME");
  std::error_code error;
  const fs::path own = fs::weakly_canonical(home != nullptr && *home != '\0' ? home : "/root", error);
  const fs::path inside = own.lexically_relative(fs::weakly_canonical(folder, error));
  return !inside.empty() && *inside.begin() != "..";
}

// The paths of a sandbox, folders before what lies in them.
class VisiblePaths {
 public:
  void Add(const fs::path& path) {
    std::error_code error;
    for (const fs::path& name : {fs::absolute(path, error), fs::canonical(path, error)}) {
      if (!name.empty() && name != "/" && fs::exists(name, error)) found_.insert(name.lexically_normal());
    }
  }
  void AddFolder(const fs::path& folder) {
    if (!HoldsHome(folder)) Add(folder);
  }
  void AddFileOfUser(const fs::path& file) {
    std::error_code error;
    const fs::path own = fs::canonical(file, error);
    for (const fs::path& name : {fs::absolute(file, error), own})
      HoldsHome(name.parent_path()) ? Add(name) : Add(name.parent_path());
  }
  std::vector<fs::path> All() const { return {found_.begin(), found_.end()}; }

 private:
  std::set<fs::path> found_;
};

}  // namespace

std::string ImportJobText(const ImportJob& job) {
  json object = {{"eval", job.eval},
                 {"distribution", job.distribution.empty() ? json() : json(job.distribution)},
                 {"small", job.small.empty() ? json() : json(job.small)}};
  for (const ImportShape& shape : job.shapes)
    object["shapes"].push_back({{"set", shape.set}, {"symbols", shape.symbols}, {"weight", shape.weight}});
  for (const ImportRange& range : job.dynamic)
    object["dynamic"].push_back({{"name", range.name}, {"low", range.low}, {"high", range.high}});
  if (!job.file.empty()) {
    object["file"] = job.file;
    if (job.any_class) {
      object["any_class"] = true;
      object["class"] = job.class_name;
      object["examples"] = job.example_inputs;
      object["init"] = json::parse(job.init.empty() ? "{}" : job.init);
      if (!job.dtype.empty()) object["dtype"] = job.dtype;
    }
  } else {
    object["function"] = job.function;
    object["examples"] = job.example_inputs;
    if (!job.folder.empty()) object["folder"] = job.folder;
  }
  if (job.sandboxed) object["sandbox"] = true;
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

fs::path PythonImporter::Script() {
  const fs::path installed = ProgramDirectory().parent_path() / "share/kevin/importer/import_module.py";
  std::error_code error;
  return fs::exists(installed, error) ? installed : fs::path(KEVIN_SOURCE_IMPORTER);
}

PythonImporter::PythonImporter(std::function<void(const std::string&)> on_phase,
                               const std::atomic<bool>* stop, ImportSandbox sandbox, fs::path script)
    : on_phase_(std::move(on_phase)),
      stop_(stop),
      sandbox_(std::move(sandbox)),
      script_(std::move(script)),
      python_(FindPythonTorch(script_, {"kevin import", false})) {
  std::error_code error;
  for (const fs::path& path : sandbox_.allow_read) {
    if (!fs::exists(path, error))
      throw Error(ExitCode::kBadRequest,
                  fmt::format("--allow-read {}: there is no such file or folder", path.string()),
                  "check the path");
  }
}

// A process that serves the job: the one that runs, where it sees the same files.
void PythonImporter::Start(const ImportJob& job, double limit_s) {
  const std::vector<std::string> argv = {python_.python.string(), script_.string()};
  if (sandbox_.trust) {
    if (!process_) process_ = std::make_unique<PythonProcess>(argv);
    return;
  }
  VisiblePaths visible;
  for (const std::string& folder : python_.folders) visible.AddFolder(folder);
  visible.AddFolder(python_.python.parent_path());
  visible.AddFolder(script_.parent_path());
  const std::string place = job.function.substr(0, job.function.rfind(':'));
  if (!job.file.empty()) {
    visible.AddFileOfUser(job.file);
  } else if (place.ends_with(".py")) {
    visible.AddFileOfUser(fs::path(job.folder) / place);
  } else {
    visible.AddFolder(job.folder);
  }
  if (!job.example_inputs.empty()) visible.Add(job.example_inputs);
  for (const fs::path& path : sandbox_.allow_read) visible.Add(path);
  if (process_ && visible.All() == visible_) return;
  process_.reset();
  visible_ = visible.All();
  if (!work_) work_ = std::make_unique<WorkFolder>(fs::temp_directory_path(), "kevin-import-");
  const PythonSandbox sandbox{work_->path(), visible_,
                              kStartLimit_s + limit_s * std::thread::hardware_concurrency()};
  process_ = std::make_unique<PythonProcess>(argv, &sandbox);
}

ImportAnswer PythonImporter::Describe(const ImportJob& job, double limit_s) {
  Start(job, limit_s);
  ImportJob asked = job;
  asked.sandboxed = !sandbox_.trust;
  process_->Write(ImportJobText(asked));
  const auto start = Clock::now();
  std::string line, phase = "start Python";
  while (true) {
    const double left_s = limit_s - std::chrono::duration<double>(Clock::now() - start).count();
    const PythonProcess::Event event = process_->Read(std::min(left_s, kStopLook_s), &line);
    if (stop_ != nullptr && *stop_) throw Error(ExitCode::kInterrupted, "interrupted while importing");
    if (event == PythonProcess::Event::kTimedOut && left_s > 0) continue;
    if (event != PythonProcess::Event::kLine) {
      const std::string how = event == PythonProcess::Event::kEnded
                                  ? "Python " + process_->DescribeEnd()
                                  : fmt::format("it is not finished after {:g} s", limit_s);
      const bool lacks_sandbox = process_->LacksSandbox();
      process_.reset();
      if (lacks_sandbox)
        throw Error(ExitCode::kMachine, "the sandbox for your file cannot be entered: " + how,
                    "--trust runs the file as you run it yourself; kevin doctor says what the sandbox lacks");
      return {{},
              how + ", in phase: " + phase,
              "run the file in Python alone, or give it more time with --limit"};
    }
    json answer = json::parse(line, nullptr, false);
    if (!answer.is_object())
      throw Error(ExitCode::kBroken, "the answer of Python is not a JSON object: " + line.substr(0, 200));
    if (answer.contains("phase")) {
      phase = answer["phase"];
      if (on_phase_) on_phase_(phase);
    } else if (answer.value("machine", false)) {
      throw Error(ExitCode::kMachine, python_.python.string() + ": " + answer.value("error", ""),
                  "set KEVIN_PYTHON to a Python with a complete torch 2.11");
    } else if (answer.contains("error")) {
      return {{}, answer.value("error", ""), answer.value("next", "")};
    } else {
      return {std::move(answer), "", ""};
    }
  }
}

// --- The text of the problem file ---

namespace {

constexpr double kShift =
    64;  // far from 0, where fewer bits are a larger error than the spread of the values
constexpr int kStrictDivisor = 64;  // like the norms that ship with Kevin: terms of about one magnitude

// Inside a basic string of TOML, or a comment.
std::string Escaped(const std::string& text, bool keep_lines) {
  std::string escaped;
  for (size_t at = 0; at < text.size();) {
    const Utf8Character c = Utf8At(text, at);
    if (c.code == '\\' || c.code == '"') escaped += '\\';
    const bool stays = (c.code == '\n' && keep_lines) || c.code == '\t' || !IsHidden(c.code);
    if (!c.is_valid) {
      escaped += "\xef\xbf\xbd";
    } else if (stays) {
      escaped += text.substr(at, c.bytes);
    } else {
      escaped += c.code < 0x10000 ? fmt::format("\\u{:04x}", c.code) : fmt::format("\\U{:08x}", c.code);
    }
    at += c.bytes;
  }
  return escaped;
}

std::string Quoted(const std::string& text) { return "\"" + Escaped(text, false) + "\""; }

// A literal string if TOML permits it; else triple quotes and hidden characters are escaped.
std::string Lines(std::string text) {
  std::erase(text, '\r');
  while (!text.empty() && text.back() == '\n') text.pop_back();
  bool plain = text.find("'''") == std::string::npos;
  for (size_t at = 0; plain && at < text.size();) {
    const Utf8Character c = Utf8At(text, at);
    plain = c.is_valid && (!IsHidden(c.code) || c.code == '\n' || c.code == '\t');
    at += c.bytes;
  }
  return plain ? "'''\n" + text + "\n'''" : "\"\"\"\n" + Escaped(text, true) + "\n\"\"\"";
}

bool IsDigits(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::string ShapeText(const json& shape) {
  std::vector<std::string> dims;
  for (const std::string dim : shape) dims.push_back(IsDigits(dim) ? dim : Quoted(dim));
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

bool IsDrawnFloat(const json& input) {
  const std::string distribution = input.at("distribution");
  const std::string dtype = input.at("dtype");
  return input.at("role") != "param" && (dtype == "float32" || dtype == "float16" || dtype == "bfloat16") &&
         (distribution == "uniform01" || distribution == "uniform" || distribution == "normal");
}

std::string InputText(const json& input, Hardness hardness) {
  std::string text =
      fmt::format("\n[[inputs]]\nname = {}\nshape = {}\ndtype = {}\n", Quoted(input.at("name")),
                  ShapeText(input.at("shape")), Quoted(input.at("dtype")));
  if (input.at("role") != "input") text += fmt::format("role = {}\n", Quoted(input.at("role")));
  const bool shifted = hardness == Hardness::kShiftedStrict && IsDrawnFloat(input);
  if (hardness != Hardness::kAsGiven && !shifted && IsDrawnFloat(input))
    return text + "distribution = \"mixture\"\n";
  text += fmt::format("distribution = {}\n", Quoted(input.at("distribution")));
  if (input.contains("values")) text += fmt::format("values = {}\n", Quoted(input.at("values")));
  if (input.value("scale", 1.0) != 1.0) text += fmt::format("scale = {:#}\n", input["scale"].get<double>());
  const double offset = input.value("offset", 0.0) + (shifted ? kShift : 0.0);
  if (offset != 0.0) text += fmt::format("offset = {:#}\n", offset);
  return text;
}

std::string CheckText(const json& check, Hardness hardness) {
  std::string reduction = check.at("reduction");
  if (hardness == Hardness::kMixtureStrict || hardness == Hardness::kShiftedStrict)
    reduction = fmt::format("({}) / {} + 1", reduction, kStrictDivisor);
  std::string text = fmt::format("\n[check]\nreduction = {}\n", Quoted(reduction));
  if (check.contains("extreme_dim")) {
    text += fmt::format("extreme_dim = {}\nextreme_is_max = {}\n", check["extreme_dim"].get<int>(),
                        check.at("extreme_is_max").get<bool>());
  }
  return text;
}

std::string FlagsText(const json& found, const ImportedProblem& problem) {
  std::string text;
  for (const auto& [flag, reason] : found.at("flags").items())
    text += fmt::format("{} = {}\n", flag, Quoted(reason));
  if (!problem.hardened.empty()) text += fmt::format("degenerate-upstream = {}\n", Quoted(problem.hardened));
  if (!problem.rejection.empty()) text += fmt::format("inadmissible = {}\n", Quoted(problem.rejection));
  return text.empty() ? text : "\n[flags]\n" + text;
}

std::string ModuleText(const json& found) {
  const json module = found.value("module", json());
  if (!module.is_object() || found.value("source", "").empty()) return "";
  const std::string import = module.value("import", "");
  return fmt::format("\n[module]\nclass = {}\n{}details = {}\n", Quoted(module.at("class")),
                     import.empty() ? "" : fmt::format("import = {}\n", Quoted(import)),
                     Lines(module.at("details").dump()));
}

// A value of ModelFacts. {"input": name} is a string, as an expression would be.
std::string ModelValueText(const json& value) {
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  if (value.is_number_integer()) return std::to_string(value.get<int64_t>());
  if (value.is_number()) {
    const std::string text = fmt::format("{}", value.get<double>());
    return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
  }
  if (value.contains("input")) return Quoted(value.at("input"));
  const bool is_list = value.contains("list");
  std::vector<std::string> items;
  for (const json& item : value.at(is_list ? "list" : "tuple")) items.push_back(ModelValueText(item));
  return is_list ? fmt::format("{{list = [{}]}}", fmt::join(items, ", "))
                 : fmt::format("[{}]", fmt::join(items, ", "));
}

std::string ModelValuesText(const json& values) {
  std::vector<std::string> items;
  for (const json& value : values) items.push_back(ModelValueText(value));
  return fmt::format("[{}]", fmt::join(items, ", "));
}

std::string NamesText(const json& names) {
  std::vector<std::string> items;
  for (const std::string name : names) items.push_back(Quoted(name));
  return fmt::format("[{}]", fmt::join(items, ", "));
}

std::string ModelText(const json& found) {
  const json model = found.value("model", json());
  if (!model.is_object()) return "";
  std::string text = "\n[model]\n";
  if (!model.at("arguments").empty()) text += fmt::format("arguments = {}\n", NamesText(model["arguments"]));
  text += fmt::format("init = {}\nforward = {}\n", ModelValuesText(model.at("init")),
                      ModelValuesText(model.at("forward")));
  if (model.at("sizes").is_array()) text += fmt::format("sizes = {}\n", NamesText(model["sizes"]));
  if (!model.at("unused").empty()) text += fmt::format("unused = {}\n", NamesText(model["unused"]));
  if (model.at("parameters").empty()) return text;
  text += "\n[model.parameters]\n";
  for (const auto& [name, state] : model["parameters"].items())
    text += fmt::format("{} = {}\n", name, Quoted(state.get<std::string>()));
  return text;
}

std::string SymbolsText(const json& symbols) {
  std::string text;
  for (const auto& [symbol, value] : symbols.items())
    text += fmt::format("{} = {}\n", symbol, value.get<int64_t>());
  return text;
}

}  // namespace

bool CanBeHarder(const json& found) {
  const json& inputs = found.at("inputs");
  return std::any_of(inputs.begin(), inputs.end(), IsDrawnFloat);
}

std::string ImportedProblemText(const json& found, const ImportedProblem& problem) {
  std::vector<std::string> families;
  for (const std::string family : found.at("families")) families.push_back(Quoted(family));
  std::string text = fmt::format("# Made by `kevin import` from {}, with torch {}.\n",
                                 Escaped(problem.from, false), found.value("torch", "?"));
  if (!problem.remark.empty()) text += "# " + Escaped(problem.remark, false) + "\n";
  text += fmt::format("id = {}\nname = {}\nfamilies = [{}]\n\nreference = {}\n", Quoted(problem.id),
                      Quoted(problem.name), fmt::join(families, ", "), Lines(found.at("reference")));
  if (!found.value("source", "").empty()) text += fmt::format("\nsource = {}\n", Lines(found["source"]));
  text += ModuleText(found);
  text += FlagsText(found, problem);
  for (const auto& [size, symbols] : found.at("sizes").items())
    text += fmt::format("\n[sizes.{}]\n{}", size, SymbolsText(symbols));
  for (const json& shape : found.value("shapes", json::array())) {
    text += fmt::format("\n[[sizes.{}]]\n{}weight = {}\n", shape.at("set").get<std::string>(),
                        SymbolsText(shape.at("symbols")), shape.at("weight").get<double>());
  }
  for (const json& input : found.at("inputs")) text += InputText(input, problem.hardness);
  for (const json& output : found.at("outputs")) {
    text += fmt::format("\n[[outputs]]\nname = {}\nshape = {}\ndtype = {}\n", Quoted(output.at("name")),
                        ShapeText(output.at("shape")), Quoted(output.at("dtype")));
  }
  const json& cost = found.at("cost");
  text += fmt::format("\n[cost]\nflops = {}\nbytes = {}\nmin_flops = 0\nmin_bytes = {}\n",
                      Quoted(cost.at("flops")), Quoted(cost.at("bytes")), Quoted(cost.at("min_bytes")));
  return text + CheckText(found.at("check"), problem.hardness) + ModelText(found);
}

}  // namespace kevin
