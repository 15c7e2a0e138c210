#include "policies/local/text/model_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "env/error.h"

namespace kevin::local {

std::string ReadModelFile(const std::filesystem::path& file, size_t most_bytes) {
  std::error_code error;
  const auto status = std::filesystem::status(file, error);
  if (!std::filesystem::exists(status)) {
    throw Error(ExitCode::kBadRequest, file.string() + ": no such file",
                "Give the folder of a Hugging Face model.");
  }
  if (!std::filesystem::is_regular_file(status))
    throw Error(ExitCode::kBadRequest, file.string() + ": no file");
  const auto size = std::filesystem::file_size(file, error);
  if (!error && size > most_bytes) {
    throw Error(ExitCode::kBadRequest, fmt::format("{}: {} MB, and at most {} MB make sense here",
                                                   file.string(), size / 1'000'000, most_bytes / 1'000'000));
  }
  std::ifstream stream(file, std::ios::binary);
  std::string text(error ? 0 : static_cast<size_t>(size), '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (error || !stream) throw Error(ExitCode::kBadRequest, file.string() + ": cannot be read");
  return text;
}

nlohmann::json ReadModelJson(const std::filesystem::path& file, size_t most_bytes) {
  const std::string text = ReadModelFile(file, most_bytes);
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& problem) {
    const size_t byte = std::min(problem.byte, text.size());
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(byte), '\n');
    std::string reason = problem.what();
    if (const size_t end = reason.rfind("; last read"); end != std::string::npos) reason.resize(end);
    if (const size_t begin = reason.find(": "); begin != std::string::npos) reason = reason.substr(begin + 2);
    throw Error(ExitCode::kBadRequest,
                fmt::format("{}: line {}, byte {}: no JSON: {}", file.string(), line, problem.byte, reason),
                "Was the file copied whole?");
  }
}

}  // namespace kevin::local
