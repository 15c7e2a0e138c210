// What the text of a candidate in Python tells without running it.

#include "env/python/python_rules.h"

#include "tests/catch.h"

namespace kevin {

TEST_CASE("what kernels are written in follows from the code, not from words beside it") {
  const std::string launched =
      "import torch, triton\n@triton.jit\ndef k(x):\n    pass\nclass M:\n    def forward(self, x):\n"
      "        k[(1,)](x)\n";
  CHECK(BackendOf(launched) == "triton");
  CHECK(BackendOf("import triton\n# @triton.jit\n# def k(x):\nk = 1\n") == "torch");
  CHECK(BackendOf("import triton\ntext = '''\n@triton.jit\ndef k(x):\n'''\nk = 1\n") == "torch");
  CHECK(BackendOf("# import triton\n@triton.jit\ndef k(x):\n    pass\nk[(1,)](2)\n") == "torch");
  // Defined, and never launched.
  CHECK(BackendOf("import triton\n@triton.jit\ndef kernel(x):\n    pass\nmy_kernel = 'kernel'\n") == "torch");
  CHECK(BackendOf("# load_inline\n") == "torch");
  CHECK(BackendOf("load_inline('m', 'int f();')  # __global__") == "cpp");
  CHECK(BackendOf("load_inline('m', '', '__global__ void k() {}')") == "cuda");
}

TEST_CASE(
    "a text whose first calls may compile, run programs or capture graphs is told from one that is built before") {
  for (const char* text :
       {"import triton\n", "from triton import jit as j\n", "import torch._inductor.config\n",
        "f = torch.compile(f)\n", "@torch.jit.script\ndef f(x): pass\n", "import cupy as cp\n",
        "os.system('nvcc k.cu')\n", "import subprocess\n", "from cuda import nvrtc\n", "import tilelang\n",
        "import triton_kernels\n", "g = torch.cuda.CUDAGraph()\n", "with torch.cuda.graph(g):\n",
        "os.execv('/bin/true', [])\n"}) {
    INFO(text);
    CHECK(NeedsFirstCallsApart(text));
  }
  for (const char* text :
       {"# compile with triton\nload_inline('m', '', '__global__ void k() {} // compile')",
        "m = load_inline(name='m', cuda_sources=s, functions=['f'], verbose=True)\nself.filesystem = m.f\n",
        "'''torch.compile is slower'''\nsystems = 1\n"}) {
    INFO(text);
    CHECK_FALSE(NeedsFirstCallsApart(text));
  }
}

}  // namespace kevin
