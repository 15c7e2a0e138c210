#include "tools/importer.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "env/error.h"
#include "env/process/files.h"
#include "tools/admission.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostBytesToAdmit = int64_t{512} << 20;  // of one set of tensors, on a CPU

// The size set to run admission at; empty when all are too large.
std::string AdmissionSize(const nlohmann::json& found) {
  for (const char* size : {"small", "full"}) {
    const nlohmann::json& bytes = found.at("bytes");
    if (bytes.contains(size) && bytes[size].get<int64_t>() <= kMostBytesToAdmit) return size;
  }
  return "";
}

// Files of the same id under another name, from an earlier import.
void RemoveNamesakes(const ImportTarget& target) {
  std::error_code none;
  const fs::path root = ProblemSet::ImportedDirectory();
  for (const auto& entry : fs::directory_iterator(target.to.parent_path(), none)) {
    const fs::path& path = entry.path();
    if (path.extension() != ".toml" || path == target.to) continue;
    if (ProblemIdOf(path.lexically_relative(root)) == target.id) fs::remove(path, none);
  }
}

void Write(const ImportTarget& target, const std::string& text) {
  std::error_code error;
  fs::create_directories(target.to.parent_path(), error);
  if (error) {
    const bool full = error == std::errc::no_space_on_device;
    throw Error(full ? ExitCode::kBroken : ExitCode::kBadRequest,
                fmt::format("{}: cannot be made: {}", target.to.parent_path().string(), error.message()),
                "set XDG_DATA_HOME to a folder that can be written to");
  }
  RemoveNamesakes(target);
  WriteFile(target.to.string(), text, true);
}

std::string AdmissionRemark(const ImportResult& result) {
  if (result.size.empty()) return "Admission was not tried: " + result.not_tried + ".";
  return fmt::format("Admission at {}: {} of {} decoys rejected.", result.size, result.decoys_rejected,
                     result.decoys);
}

// 0 for what is no number from 1 on.
int64_t PositiveNumber(const std::string& text) {
  const bool is_number =
      !text.empty() && text.size() <= 12 && text.find_first_not_of("0123456789") == std::string::npos;
  return is_number ? std::stoll(text) : 0;
}

}  // namespace

void AddDynamicOption(CLI::App* command, std::vector<std::string>* texts) {
  command
      ->add_option(
          "--dynamic", *texts,
          "NAME=LOW..HIGH, a size or a dimension of an input (x.0) that varies; repeatable. Shapes from the range "
          "become the size set dynamic")
      ->allow_extra_args(false);
}

std::vector<ImportRange> DynamicRanges(const std::vector<std::string>& texts) {
  std::vector<ImportRange> ranges;
  for (const std::string& text : texts) {
    const size_t equals = text.find('='), dots = text.find("..", equals == std::string::npos ? 0 : equals);
    ImportRange range;
    if (equals != std::string::npos && equals > 0 && dots != std::string::npos)
      range = {text.substr(0, equals), PositiveNumber(text.substr(equals + 1, dots - equals - 1)),
               PositiveNumber(text.substr(dots + 2))};
    if (range.name.empty() || range.low < 1 || range.high < range.low)
      throw Error(ExitCode::kBadRequest, fmt::format("--dynamic {}: it is not NAME=LOW..HIGH", text),
                  "for example --dynamic x.1=1..2048");
    ranges.push_back(range);
  }
  return ranges;
}

void AddImportSandboxOptions(CLI::App* command, ImportSandbox* sandbox) {
  command
      ->add_option("--allow-read", sandbox->allow_read,
                   "A file or folder that the sandboxed file may read; repeatable")
      ->allow_extra_args(false);
  command->add_flag("--trust", sandbox->trust,
                    "Run the file as you run it yourself, without the sandbox: it may do what you may");
}

ImportResult Importer::Import(const ImportTarget& target, const ImportJob& job, double limit_s) {
  ImportResult result;
  result.target = target;
  ImportAnswer answer = python_->Describe(job, limit_s);
  result.refusal = answer.refusal;
  result.next_step = answer.next_step;
  if (!result.imported()) return result;
  ImportedProblem problem{target.id, target.name,       job.file.empty() ? job.function : job.file, "", "",
                          "",        Hardness::kAsGiven};
  try {
    for (const std::string note : answer.found.at("notes")) result.notes.push_back(note);
    ParseProblem(ImportedProblemText(answer.found, problem), target.to);
    Admit(answer.found, job.distribution.empty(), &problem, &result);
    problem.remark = AdmissionRemark(result);
    Write(target, ImportedProblemText(answer.found, problem));
  } catch (const nlohmann::json::exception& error) {
    throw Error(ExitCode::kBroken, std::string("Python's answer lacks a part: ") + error.what());
  } catch (const Error& error) {
    if (error.code() != ExitCode::kBadRequest) throw;
    result.refusal = error.what();
    result.next_step = error.next_step();
  }
  return result;
}

void Importer::Admit(const nlohmann::json& found, bool may_harden, ImportedProblem* problem,
                     ImportResult* result) {
  const std::string size = AdmissionSize(found);
  if (environment_ == nullptr || size.empty()) {
    result->not_tried =
        environment_ == nullptr ? why_not_ : "it is too large for a CPU, and no smaller size was found";
    return;
  }
  result->size = size;
  EvaluateOptions options;
  options.workload.size = size;
  std::string first_reason;
  for (const Hardness hardness :
       {Hardness::kAsGiven, Hardness::kMixture, Hardness::kMixtureStrict, Hardness::kShiftedStrict}) {
    if (hardness != Hardness::kAsGiven && (!may_harden || !CanBeHarder(found))) break;
    problem->hardness = hardness;
    const AdmissionResult admission = kevin::Admit(
        *environment_, ParseProblem(ImportedProblemText(found, *problem), result->target.to), options);
    if (hardness == Hardness::kAsGiven || admission.reason.empty()) {
      result->decoys_rejected = admission.Count(false, false);
      result->decoys = result->decoys_rejected + admission.Count(false, true);
    }
    if (hardness == Hardness::kAsGiven) first_reason = admission.reason;
    if (!admission.reason.empty()) continue;
    if (hardness != Hardness::kAsGiven) {
      result->hardened = first_reason;
      problem->hardened = "On inputs as its get_inputs draws them: " + first_reason + ".";
    }
    return;
  }
  problem->hardness = Hardness::kAsGiven;
  problem->rejection = result->rejection = first_reason;
}

}  // namespace kevin
