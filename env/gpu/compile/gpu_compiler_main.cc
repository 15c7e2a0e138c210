// kevin-gpu-compiler NVRTC [NVJITLINK]: compiles what comes through its socket, one text after another, until
// the socket closes. Started inside the compiler's sandbox by the compile farm; it stays, so that loading the
// compiler and its precompiled headers is paid for once.

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "env/gpu/compile/compiler_protocol.h"
#include "env/gpu/compile/device_compiler.h"

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "kevin-gpu-compiler is started by kevin; it has no use of its own\n");
    return 2;
  }
  // The working folder's name goes into the machine code's line information.
  if (chdir("/") != 0) return 1;
  signal(SIGPIPE, SIG_IGN);
  kevin::DeviceCompiler compiler(argv[1], argc > 2 ? argv[2] : "");
  for (std::string bytes; kevin::ReadMessage(kevin::kCompilerSocket, &bytes);) {
    kevin::CompilerRequest request;
    if (!kevin::FromBytes(bytes, &request)) return 1;
    if (!kevin::WriteMessage(kevin::kCompilerSocket, kevin::ToBytes(compiler.Compile(request)))) return 1;
  }
  return 0;
}
