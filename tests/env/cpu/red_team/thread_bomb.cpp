// Starts threads until there are no more.
#include <unistd.h>

#include <thread>
extern "C" void launch(const float*, float*) {
  for (;;) std::thread([] { sleep(3600); }).detach();
}
