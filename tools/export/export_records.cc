// `kevin export --format`: its options, and lines to files.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "agent/terminal.h"
#include "agent/text.h"
#include "env/error.h"
#include "tools/export/kernelbench.h"
#include "tools/export/parquet.h"
#include "tools/export/records.h"
#include "tools/record_options.h"

namespace kevin {
namespace {

// Lines to a file that takes its name only when it is whole, or to standard output.
class LineFile {
 public:
  LineFile(const std::string& path, bool force) : path_(path), part_(path + ".part") {
    if (path_ == "-") return;
    std::error_code ignored;
    if (!force && std::filesystem::exists(path_, ignored)) {
      throw Error(ExitCode::kBadRequest, path_ + ": the file exists and was left as it is",
                  "give another name with -o, or --force to overwrite it");
    }
    file_ = std::fopen(part_.c_str(), "we");
    if (file_ == nullptr)
      throw Error(ExitCode::kBadRequest, fmt::format("{}: cannot write: {}", path_, std::strerror(errno)),
                  "give another file with -o");
  }
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;
  ~LineFile() {
    if (file_ == nullptr) return;
    std::fclose(file_);
    std::remove(part_.c_str());
  }

  void Write(const Json& line) {
    const std::string text = ToLine(line);
    if (std::fwrite(text.data(), 1, text.size(), file_ ? file_ : stdout) != text.size()) Fail();
  }
  void Finish() {
    if (file_ == nullptr) return;
    const bool is_whole = std::fclose(std::exchange(file_, nullptr)) == 0;
    if (!is_whole || std::rename(part_.c_str(), path_.c_str()) != 0) Fail();
  }

 private:
  [[noreturn]] void Fail() {
    throw Error(ExitCode::kBroken, fmt::format("{}: cannot write: {}", path_, std::strerror(errno)),
                "free some space and export again");
  }

  std::string path_, part_;
  std::FILE* file_ = nullptr;
};

// Of lines; "": every field of a turn.
std::string SchemaOf(const RecordsOptions& options) {
  return options.format == "sft" || options.format == "preference" ? options.format : options.schema;
}

void CheckRecordsOptions(const RecordsOptions& options) {
  if (options.output.empty()) {
    throw Error(ExitCode::kBadRequest, "--format needs a place to write to",
                "give -o FILE, -o - for standard output, or for kernelbench -o FOLDER");
  }
  const bool takes_schema = options.format == "jsonl" || options.format == "parquet";
  if (!takes_schema && !options.schema.empty())
    throw Error(ExitCode::kBadRequest, "--schema is for --format parquet and jsonl", "leave it out");
  if (options.format != "parquet") return;
  if (options.schema.empty())
    throw Error(ExitCode::kBadRequest, "--format parquet needs columns",
                "give --schema sft, preference, prompts or trajectory");
  if (options.output == "-")
    throw Error(ExitCode::kBadRequest, "Parquet cannot be written to standard output",
                "give -o FILE.parquet");
  std::error_code ignored;
  if (!options.force && std::filesystem::exists(options.output, ignored))
    throw Error(ExitCode::kBadRequest, options.output + ": the file exists and was left as it is",
                "give another name with -o, or --force to overwrite it");
}

RecordsWritten WriteLines(const RecordsOptions& options, const RecordsRequest& request,
                          const WriteLine& write) {
  const std::string schema = SchemaOf(options);
  return schema == "sft"          ? WriteSft(request, write)
         : schema == "preference" ? WritePreferences(request, write)
         : schema == "prompts"    ? WritePrompts(request, write)
         : schema == "trajectory" ? WriteTrajectories(request, write)
                                  : WriteJsonLines(request, write);
}

Selection SelectionOf(const RecordsOptions& options) {
  if (options.select == "best") return Selection::kBest;
  if (options.select == "correct") return Selection::kCorrect;
  if (options.select == "all") return Selection::kAll;
  return SchemaOf(options) == "sft" ? Selection::kBest : Selection::kAll;
}

}  // namespace

void AddRecordsOptions(CLI::App* command, RecordsOptions* o) {
  const std::string group = "Many turns";
  command->add_option("--format", o->format, "Write many turns in this format")
      ->check(CLI::IsMember({"jsonl", "parquet", "sft", "preference", "kernelbench"}))
      ->group(group);
  command
      ->add_option(
          "--schema", o->schema,
          "The columns of parquet and jsonl: TRL's for sft and preference, verl's prompts, or trajectory (ids, "
          "masks, log-probabilities, advantages)")
      ->check(CLI::IsMember({"sft", "preference", "prompts", "trajectory"}))
      ->group(group);
  command->add_option("--run", o->runs, "Only this run (may be repeated): id, unique beginning, or latest")
      ->allow_extra_args(false)
      ->group(group);
  command->add_option("--problems", o->problems, "Only problems whose ids begin so: level1/")->group(group);
  command
      ->add_option("--rules", o->rules,
                   "Only episodes judged by these rules (kevin collect --help describes them)")
      ->check(CLI::IsMember({"kevin", "kernelbench", "open"}))
      ->group(group);
  command
      ->add_option("--select", o->select,
                   "Which turns; best: of each problem and rules (default: sft best, the others all)")
      ->check(CLI::IsMember({"best", "correct", "all"}))
      ->group(group);
  command
      ->add_option("--min-speedup", o->min_speedup,
                   "Only correct kernels at least this much faster than eager")
      ->group(group);
  command->add_option("--pairs", o->pairs, "preference: the most pairs of one prompt")
      ->check(CLI::PositiveNumber)
      ->group(group)
      ->capture_default_str();
  AddAcceptedVerdicts(command, &o->accept, group);
  AddSchemeOptions(command, &o->scheme);
}

int ExportRecords(const RecordsOptions& options) {
  CheckRecordsOptions(options);
  const bool is_parquet = options.format == "parquet";
  RecordsRequest request;
  request.databases = options.databases, request.runs = options.runs, request.problems = options.problems;
  request.rules = options.rules;
  request.scheme = SchemeFrom(options.scheme), request.selection = SelectionOf(options);
  request.min_speedup = options.min_speedup, request.pairs = options.pairs;
  request.accept = options.accept;
  RecordsWritten written;
  if (options.format == "kernelbench") {
    written = WriteKernelBench(request, options.output);
  } else {
    const std::string lines = is_parquet
                                  ? std::filesystem::path(options.output).replace_extension(".jsonl").string()
                                  : options.output;
    LineFile file(lines, options.force);
    written = WriteLines(options, request, [&](const Json& line) { file.Write(line); });
    file.Finish();
    if (is_parquet) {
      const ParquetWritten parquet = ConvertToParquet(options.schema, lines, options.output);
      written.places = {fmt::format("{} ({})", options.output, Counted(parquet.groups, "row group")), lines};
    }
  }
  if (written.places.empty() && options.output != "-") written.places = {options.output};
  PrintFormat(stderr, "{} written{}{}{}\n",
              Counted(written.lines, options.format == "kernelbench" ? "sample" : "line"),
              written.places.empty() ? "" : " to ", fmt::join(written.places, ", "),
              written.remark.empty() ? "" : "; " + written.remark);
  if (!written.doubtful_verdicts.empty()) PrintFormat(stderr, "{}\n", written.doubtful_verdicts);
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace kevin
