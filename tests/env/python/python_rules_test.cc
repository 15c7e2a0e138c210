// What the text of a candidate in Python tells without running it.

#include "env/python/python_rules.h"

#include <optional>
#include <string>
#include <vector>

#include "tests/catch.h"

namespace kevin {
namespace {

// What KernelBench's static rules ask of a text that uses a backend, and no more.
const std::string kCuda = "m = load_inline('m', '', '__global__ void k() {}')\n";
const std::string kTriton =
    "import triton\nimport triton.language as tl\n@triton.jit\ndef k(x):\n    tl.load(x)\nk[(1,)](x)\n";
const std::string kTileLang =
    "import tilelang\nimport tilelang.language as T\n@tilelang.jit\ndef f():\n    @T.prim_func\n    def g(): ...\n";
const std::string kCute = "from cutlass import cute\n@cute.kernel\ndef k(x): ...\n";

// Empty, or the reason without its begin.
std::string StaticReason(const std::string& text) {
  const std::string begin = "KernelBench's static rules refuse it: ", refusal = KernelBenchRefusal(text);
  if (refusal.empty()) return "";
  REQUIRE(refusal.find(begin) == 0);
  return refusal.substr(begin.size());
}

}  // namespace

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

TEST_CASE("TileLang and CuTe need a use of what is imported") {
  CHECK(BackendOf(kTileLang) == "tilelang");
  CHECK(BackendOf("if a: import os, tilelang as t; f = t . jit(f)\n") == "tilelang");
  CHECK(BackendOf("from tilelang import (language as T,\n    jit)\n@jit\ndef f(): ...\n") == "tilelang");
  CHECK(BackendOf("from tilelang \\\n  import language as T\nf = T.Tensor\n") == "tilelang");
  CHECK(BackendOf("from tilelang.language import *\n") == "tilelang");  // any name may be of it
  CHECK(BackendOf(kCute) == "cute");
  CHECK(BackendOf("import cutlass.cute as cute\n@cute.jit\ndef f(): ...\n") == "cute");
  CHECK(BackendOf("import cutlass\nimport cutlass.cute as cute\ny = relu(x)\n") == "torch");
  CHECK(BackendOf("import cutlass\n" + kCuda) == "cuda");
  CHECK(BackendOf("import tilelang\n# tilelang.jit\ny = 'tilelang.jit'\nz = x.tilelang()\n") == "torch");
  // The names of a module mean others elsewhere.
  CHECK(BackendOf("import tilelang.language as T\ny = x.T\nT = x.shape[1]\ndef jit(T): return T\n") ==
        "torch");
  CHECK(BackendOf("from tilelang import jit\ndef jit(f): return f\n") == "torch");
  for (const char* other :
       {"import tilelang_tools\ntilelang_tools.jit()\n", "from .tilelang import jit\njit()\n",
        "import mine.tilelang as t\nt.jit()\n", "tilelang.jit()\n"}) {
    INFO(other);
    CHECK(BackendOf(other) == "torch");
  }
}

TEST_CASE("the backend of a record is torch where no kernel of its own ran") {
  for (const char* backend : {"triton", "cuda", "cpp", "torch"}) {
    CHECK(BackendThatRan(backend, 0.0) == "torch");
    CHECK(BackendThatRan(backend, 0.001) == backend);
    CHECK(BackendThatRan(backend, std::nullopt) == backend);
  }
  // Their kernels are of no name that the text tells.
  CHECK(BackendThatRan("tilelang", 0.0) == "tilelang");
  CHECK(BackendThatRan("cute", 0.0) == "cute");
  CHECK(BackendThatRan("", 0.0).empty());
}

TEST_CASE("KernelBench's static rules ask for the words of a backend") {
  for (const std::string& text : {kCuda, kTriton, kTileLang, kCute}) {
    INFO(text);
    CHECK(StaticReason(text).empty());
  }
  const std::string none = "it has no kernel in CUDA C++ (__global__), Triton, CuTe or TileLang";
  CHECK(StaticReason("y = torch.relu(x)\n") == none);
  CHECK(StaticReason("m = load_inline('m', 'int f();')\n") == none);
  CHECK(StaticReason("m = load_inline('m', '')  # __global__\n") == none);
  CHECK(StaticReason("y = '__global__ void k() {}'\n") ==
        "its CUDA C++ is compiled by no load_inline or cpp_extension");
  CHECK(StaticReason("from torch.utils import cpp_extension\ny = '__global__ void k() {}'\n").empty());
  const std::string jit =
      "from triton import jit\nimport triton.language as tl\n@jit\ndef k(x):\n    tl.load(x)\nk[1](x)\n";
  CHECK(StaticReason(jit) == "its kernels in Triton stand under no @triton.jit or @triton.autotune");
  CHECK(StaticReason("import triton\n@triton.jit\ndef k(x):\n    mytl.load(x)\nk[1](x)\n") ==
        "its kernels in Triton have no operation of tl");
  CHECK(StaticReason("import tilelang\nf = tilelang.compile(g)\n") ==
        "its kernels in TileLang stand under no @T.prim_func");
  CHECK(StaticReason("import cutlass.cute as cute\n@cute.jit\ndef k(x): ...\n") ==
        "it has no cute::, cutlass:: or `from cutlass`");
}

TEST_CASE("KernelBench's static rules refuse words anywhere outside its comments") {
  struct Case {
    std::string reason;
    std::vector<std::string> refused, permitted;
  };
  const std::string spaces(10000, ' ');
  const Case cases[] = {
      {"try/except: a fallback may take the kernel's place",
       {"try: y = 1", "if c: try : y = 1", "x = 1; try\n:", "except:", "    except ValueError:",
        "a except\tb", "'We try: it'", "x = 1;" + spaces + "try" + spaces + ":"},
       {"# try:", "// except:", "retry: int = 1", "try_ = 1", "exception = 1", "trying: int", "except",
        "except ("}},
      {"pass: nothing takes the place of the reference",
       {"class ModelNew(Base): pass", "if c: pass", "    pass", "pass;", "'one pass over x'", "two\u2011pass",
        "pass\u3002", "\u00d7 " + spaces + "pass", "x = 1  ;pass# nothing"},
       {"# pass", "x = 1  // pass", "bypass = 1", "passed = 1", "_pass = 1", "pass_ = 1", "\u4e24pass",
        "pass\u00e9", "s = 'a#b'; pass"}},
      {"a clock is replaced",
       {"torch.cuda.Event = Fake", "torch.cuda.Event.record=f", "torch.cuda.Event.elapsed_time = f",
        "torch.cuda.synchronize" + spaces + "= f", "time.perf_counter = f", "x = 1; time.time = f",
        "datetime.time = f", "time.time == t"},
       {"torch.cuda.Event()", "torch.cuda.Event.query = f", "t = time.time()", "perf_counter = f",
        "torch.cuda.current_stream = f", "# time.time = f"}},
      {"threads or processes of its own",
       {"threading.Thread (f)", "import threading", "x = 1; from threading import Thread",
        "import" + spaces + "threading", "multiprocessing.Process", "multiprocessing.Pool(2)",
        "multiprocessing.Manager", "multiprocessing.Queue", "multiprocessing.Pipe",
        "import multiprocessing as m", "from concurrent.futures import wait", "ThreadPoolExecutor",
        "e = ProcessPoolExecutor()", spaces + "import threading"},
       // KernelBench's rules know these words in other places only.
       {"threading = 1", "multithreading", "from multiprocessing import Process",
        "from concurrent import futures", "import os, threading", "threading.Lock()"}},
      {"a subclass of Tensor",
       {"class A(torch.Tensor): ...", "class A(Tensor): ...", "class A(B): f = g(Tensor)",
        "x = torch.Tensor.__new__(A)", "torch.Tensor._make_subclass(A, x)", "class\n A" + spaces + "(Tensor)",
        "class A: ...; class\nB(Tensor)"},
       {"class A(nn.Module):\n  f(Tensor)", "class A( Tensor ): ...", "class A(B, Tensor): ...", "f(Tensor)",
        "isinstance(x, torch.Tensor)", "class A(nn.Module):  # (Tensor)"}},
  };
  for (const Case& rule : cases) {
    for (const std::string& line : rule.refused) {
      INFO(line);
      CHECK(StaticReason(kCuda + line + "\n") == rule.reason);
    }
    for (const std::string& line : rule.permitted) {
      INFO(line);
      CHECK(StaticReason(kCuda + line + "\n").empty());
    }
  }
}

TEST_CASE("what KernelBench only warns of is permitted by its static rules") {
  for (const char* line :
       {"y = torch.relu(x)", "y = F.softmax(x)", "l = torch.nn.Linear(1, 2)", "x = x.half()",
        "s = torch.cuda.Stream()", "with torch.cuda.stream(s): ...", "x.record_stream(s)"}) {
    INFO(line);
    CHECK(StaticReason(kCuda + line + "\n").empty());
  }
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
    CHECK(NeedsFirstCallsApart("x = [" + std::string(10000, ' ') + "]; " + text));
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
