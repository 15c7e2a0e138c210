#pragma once
// A `kevin-model` of one's own on a Unix socket, from its start to its end. It ends with this process too,
// however that ends.

#include <sys/types.h>

#include <deque>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "policies/policy.h"

namespace kevin::local {

class ModelProcess {
 public:
  // A line of its stderr while it loads; from a thread of its own.
  using OnLine = std::function<void(const std::string& line)>;

  // Starts `program` with `arguments` (the folder and options) and waits until it takes requests. Call it
  // from a thread that lives as long as the process is to live: it is that thread's child. Throws Error with
  // what the program said when it ends before that.
  ModelProcess(const std::filesystem::path& program, const std::vector<std::string>& arguments,
               const OnLine& on_line);
  ~ModelProcess();  // asks it to end, and after 5 s ends it
  ModelProcess(const ModelProcess&) = delete;
  ModelProcess& operator=(const ModelProcess&) = delete;

  const std::string& url() const { return url_; }  // "unix:/tmp/.../socket"
  const std::string& model() const { return model_; }
  const std::string& device() const { return device_; }
  pid_t pid() const { return pid_; }

  // Why it is no more, with the last it said; nullopt while it lives. Any thread.
  std::optional<Error> Death();

 private:
  void Start(const std::filesystem::path& program, const std::vector<std::string>& arguments);
  void ReadStderr(OnLine on_line);
  void WaitUntilReady();
  Error DeathOf(int status);
  void Stop();

  pid_t pid_ = -1;
  int stderr_ = -1, ready_ = -1;
  std::string url_, model_, device_;
  std::thread reader_;
  std::mutex mutex_;  // of what follows
  std::deque<std::string> last_lines_;
  bool is_ready_ = false;
  std::optional<Error> death_;
};

}  // namespace kevin::local
