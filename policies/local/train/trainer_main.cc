// The program kevin-trainer: weights, optimiser and batches; started by `kevin train` with a socket as its
// standard input and output.

#include <unistd.h>

#include <csignal>

#include "policies/local/train/serve_training.h"

int main() {
  // Ctrl-C reaches the whole group; `kevin train` decides when to end.
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a limit on files' sizes is then a write that fails
  kevin::local::ServeTraining(STDIN_FILENO, STDOUT_FILENO);
  return 0;
}
