// Ends with status 0 before it has written anything.
#include <unistd.h>
extern "C" void launch(const float*, float*) { _exit(0); }
