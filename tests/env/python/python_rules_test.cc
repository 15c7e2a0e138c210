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

}  // namespace kevin
