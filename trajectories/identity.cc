#include "trajectories/identity.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>

#include "env/error.h"

namespace kevin {
namespace {

constexpr std::string_view kAlphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
constexpr int kTimeCharacters = 10, kRandomCharacters = 16;

// 5 bits each: 10 of time, 16 of randomness.
using Digits = std::array<uint8_t, kTimeCharacters + kRandomCharacters>;

int64_t NowMilliseconds() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

Digits Fresh(int64_t milliseconds) {
  Digits digits{};
  for (int i = kTimeCharacters - 1; i >= 0; --i, milliseconds >>= 5) {
    digits[i] = static_cast<uint8_t>(milliseconds & 31);
  }
  std::array<uint8_t, kRandomCharacters> random{};
  if (getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size())) {
    throw Error(ExitCode::kMachine, "the system gives no random numbers (getrandom failed)");
  }
  for (int i = 0; i < kRandomCharacters; ++i) digits[kTimeCharacters + i] = random[i] & 31;
  return digits;
}

void Increment(Digits* digits) {
  for (int i = static_cast<int>(digits->size()) - 1; i >= 0; --i) {
    if (++(*digits)[i] < 32) return;
    (*digits)[i] = 0;
  }
}

}  // namespace

std::string NewUlid() {
  static std::mutex mutex;
  static Digits last{};
  static int64_t last_milliseconds = -1;
  static pid_t owner = 0;
  const std::lock_guard lock(mutex);
  const int64_t now = NowMilliseconds();
  if (now > last_milliseconds ||
      owner != getpid()) {  // a forked child must not count on from its parent's id
    last = Fresh(now);
    last_milliseconds = now;
    owner = getpid();
  } else {
    Increment(&last);
  }
  std::string text;
  for (const uint8_t digit : last) text += kAlphabet[digit];
  return text;
}

int64_t UlidMilliseconds(std::string_view ulid) {
  int64_t milliseconds = 0;
  for (const char c : ulid.substr(0, kTimeCharacters)) {
    milliseconds = milliseconds * 32 + static_cast<int64_t>(kAlphabet.find(c));
  }
  return milliseconds;
}

std::string NormalizeUlid(std::string_view typed) {
  std::string text;
  for (const unsigned char c : typed) {
    const char upper = static_cast<char>(std::toupper(c));
    text += upper == 'I' || upper == 'L' ? '1' : upper == 'O' ? '0' : upper;
  }
  return text;
}

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
