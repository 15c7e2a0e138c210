#include "agent/print.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "env/error.h"

namespace kevin {

void Print(std::FILE* out, const std::string& text) {
  errno = 0;
  std::fwrite(text.data(), 1, text.size(), out);
  if (std::fflush(out) == 0 || errno == EPIPE || out != stdout) return;
  throw Error(ExitCode::kBroken, fmt::format("standard output: {}", std::strerror(errno)), "free space");
}

}  // namespace kevin
