#pragma once
// A `kevin-model` child process on a private Unix socket. It ends with this object, and with this process
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
  // Receives each line of its stderr during loading, from a thread of its own.
  using OnLine = std::function<void(const std::string& line)>;

  // Starts `program` with `arguments` (folder and options) and waits until it is ready for requests. The
  // calling thread must live as long as the process, which is its child. Throws Error with the program's last
  // output if it ends before.
  ModelProcess(const std::filesystem::path& program, const std::vector<std::string>& arguments,
               const OnLine& on_line);
  ~ModelProcess();  // asks it to end; kills it after 5 s
  ModelProcess(const ModelProcess&) = delete;
  ModelProcess& operator=(const ModelProcess&) = delete;

  const std::string& url() const { return url_; }  // "unix:/tmp/.../socket"
  const std::string& model() const { return model_; }
  const std::string& device() const { return device_; }
  pid_t pid() const { return pid_; }

  // Why the process has ended, with its last output; nullopt while it runs. Any thread.
  std::optional<Error> PermanentFailure();

 private:
  void Start(const std::filesystem::path& program, const std::vector<std::string>& arguments);
  void ReadStderr(OnLine on_line);
  void WaitUntilReady();
  Error FailureOf(int status);
  void Stop();

  pid_t pid_ = -1;
  int stderr_ = -1, ready_ = -1;
  std::string url_, model_, device_;
  std::thread reader_;
  std::mutex mutex_;  // of the members below
  std::deque<std::string> last_lines_;
  bool is_ready_ = false;
  std::optional<Error> failure_;
};

}  // namespace kevin::local
