#include "tests/trajectories/postgres_server.h"

#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <thread>
#include <vector>

#include "env/error.h"
#include "trajectories/database.h"
#include "trajectories/engine.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

// The newest that is installed; empty: none.
std::string FindPrograms() {
  std::string newest;
  std::error_code none;
  for (const auto& version : fs::directory_iterator("/usr/lib/postgresql", none)) {
    const fs::path programs = version.path() / "bin";
    if (fs::exists(programs / "initdb") && programs.string() > newest) newest = programs.string();
  }
  return newest;
}

// PostgreSQL refuses to run as root; root runs it as somebody who may do nothing else.
unsigned ServerUser() {
  if (geteuid() != 0) return geteuid();
  const passwd* user = getpwnam("postgres");
  if (user == nullptr) user = getpwnam("nobody");
  return user == nullptr ? 65534 : user->pw_uid;
}

int StartAs(unsigned user, const std::vector<std::string>& words, const std::string& log) {
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGQUIT);
  if (geteuid() == 0 && (setgid(user) != 0 || setuid(user) != 0)) _exit(90);
  prctl(PR_SET_PDEATHSIG, SIGQUIT);  // the change of user took it away
  const int file = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  dup2(file, 1);
  dup2(file, 2);
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  _exit(91);
}

}  // namespace

PostgresServer& PostgresServer::Get() {
  static PostgresServer server;
  return server;
}

PostgresServer::PostgresServer() : programs_(FindPrograms()), user_(ServerUser()) {
  if (programs_.empty()) {
    std::puts("skipped: no PostgreSQL under /usr/lib/postgresql (package postgresql)");
    std::exit(0);
  }
  std::string pattern = (fs::temp_directory_path() / "kevin-pg-XXXXXX").string();
  folder_ = mkdtemp(pattern.data());
  if (chown(folder_.c_str(), user_, static_cast<gid_t>(-1)) != 0) throw std::runtime_error("chown");
  const int initdb = StartAs(user_,
                             {programs_ + "/initdb", "-D", folder_ + "/data", "-U", "kevin", "-A", "trust",
                              "-E", "UTF8", "--no-locale", "--no-sync"},
                             folder_ + "/log");
  int status = 0;
  waitpid(initdb, &status, 0);
  if (status != 0) throw std::runtime_error("initdb failed; see " + folder_ + "/log");
  Start();
}

void PostgresServer::Start() {
  server_ = StartAs(user_,
                    {programs_ + "/postgres", "-D", folder_ + "/data", "-k", folder_, "-c",
                     "listen_addresses=", "-c", "max_connections=60", "-c", "fsync=off"},
                    folder_ + "/log");
  for (int waited_ms = 0; waited_ms < 30'000; waited_ms += 50) {
    try {
      OpenPostgres("postgresql://kevin@/postgres?host=" + folder_);
      return;
    } catch (const Error&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
  throw std::runtime_error("postgres does not start; see " + folder_ + "/log");
}

void PostgresServer::Crash() {
  kill(server_, SIGQUIT);
  waitpid(server_, nullptr, 0);
}

PostgresServer::~PostgresServer() {
  Crash();
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

std::string PostgresServer::NewDatabase() {
  const std::string name = "test" + std::to_string(++databases_);
  OpenPostgres("postgresql://kevin@/postgres?host=" + folder_)->Execute(("CREATE DATABASE " + name).c_str());
  return "postgresql://kevin@/" + name + "?host=" + folder_;
}

}  // namespace kevin
