#include "trajectories/owner.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace kevin {
namespace {

std::string ReadWord(const std::string& path) {
  std::string word;
  std::ifstream(path) >> word;
  return word.empty() ? "?" : word;
}

std::string Host() {
  utsname name{};
  uname(&name);
  return name.nodename[0] ? name.nodename : "?";
}

std::string PidNamespace() {
  std::error_code error;
  const std::string link = std::filesystem::read_symlink("/proc/self/ns/pid", error).string();
  return error ? "?" : link;
}

// Clock ticks since boot at which the process started; "" if there is none or it is a zombie. The name in the
// second field may hold blanks and parentheses, so fields are counted from the last ')'.
std::string StartTime(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::stringstream text;
  text << file.rdbuf();
  const std::string line = text.str();
  const size_t end = line.rfind(')');
  if (end == std::string::npos) return "";
  std::istringstream fields(line.substr(end + 1));
  std::string state, field;
  fields >> state;
  if (state == "Z" || state == "X") return "";
  for (int i = 4; i <= 22; ++i) fields >> field;
  return field;
}

}  // namespace

std::string ThisProcess() {
  const std::string pid = std::to_string(getpid());
  return fmt::format("{} {} {} {} {}", Host(), ReadWord("/proc/sys/kernel/random/boot_id"), PidNamespace(),
                     pid, StartTime(pid));
}

bool IsDead(const std::string& owner) {
  std::istringstream fields(owner);
  std::string host, boot, pid_namespace, pid, start;
  fields >> host >> boot >> pid_namespace >> pid >> start;
  if (host != Host()) return false;
  if (boot != ReadWord("/proc/sys/kernel/random/boot_id")) return true;
  return pid_namespace == PidNamespace() && StartTime(pid) != start;
}

}  // namespace kevin
