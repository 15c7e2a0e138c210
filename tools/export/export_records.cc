#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "agent/events.h"
#include "env/error.h"
#include "tools/export/commands.h"
#include "tools/export/kernelbench.h"
#include "tools/export/records.h"

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

Selection SelectionOf(const ExportRecordsOptions& options) {
  if (options.select == "best") return Selection::kBest;
  if (options.select == "correct") return Selection::kCorrect;
  if (options.select == "all") return Selection::kAll;
  return options.format == "sft" ? Selection::kBest : Selection::kAll;
}

}  // namespace

void AddRecordsOptions(CLI::App* command, ExportRecordsOptions* o) {
  const std::string group = "Many turns";
  command->add_option("--format", o->format, "What is written of many turns")
      ->check(CLI::IsMember({"jsonl", "sft", "preference", "kernelbench"}))
      ->group(group);
  command->add_option("--run", o->runs, "Only this run (may be repeated): id, unique beginning, or latest")
      ->allow_extra_args(false)
      ->group(group);
  command->add_option("--problems", o->problems, "Only problems whose ids begin so: level1/")->group(group);
  command->add_option("--select", o->select, "Which turns (default: sft best, the others all)")
      ->check(CLI::IsMember({"best", "correct", "all"}))
      ->group(group);
  command->add_option("--min-speedup", o->min_speedup, "Of the right kernels that are selected")
      ->group(group);
  command->add_option("--pairs", o->pairs, "preference: most of one prompt")
      ->check(CLI::PositiveNumber)
      ->group(group)
      ->capture_default_str();
  AddSchemeOptions(command, &o->scheme);
}

int ExportRecords(const ExportRecordsOptions& options) {
  if (options.output.empty()) {
    throw Error(ExitCode::kBadRequest, "where to?",
                "give -o FILE, -o - for standard output, or for kernelbench -o FOLDER");
  }
  RecordsRequest request;
  request.databases = options.databases, request.runs = options.runs, request.problems = options.problems;
  request.scheme = SchemeFrom(options.scheme), request.selection = SelectionOf(options);
  request.min_speedup = options.min_speedup, request.pairs = options.pairs;
  RecordsWritten written;
  if (options.format == "kernelbench") {
    written = WriteKernelBench(request, options.output);
  } else {
    LineFile file(options.output, options.force);
    const WriteLine write = [&](const Json& line) { file.Write(line); };
    written = options.format == "sft"          ? WriteSft(request, write)
              : options.format == "preference" ? WritePreferences(request, write)
                                               : WriteJsonLines(request, write);
    file.Finish();
  }
  fmt::print(stderr, "{} {} written{}{}\n", written.lines,
             options.format == "kernelbench" ? "samples" : "lines",
             options.output == "-" ? "" : " to " + options.output,
             written.remark.empty() ? "" : "; " + written.remark);
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace kevin
