// Prints what would rename, clear and reprogram the terminal that shows its outcome, then falls.
#include <cstdio>
#include <cstdlib>
extern "C" void launch(const float*, float*) {
  std::fputs(
      "\033]0;owned\007\033[2J\033[1;31mmeasured 100x\033[0m\r\x9b"
      "2J\n",
      stderr);
  std::abort();
}
