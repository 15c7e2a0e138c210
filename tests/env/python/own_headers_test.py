"""Extensions with Kevin's own headers against the same text with torch's: own_headers_test.py SOURCE_FOLDER LIBRARY, where
LIBRARY is kevin-python-worker.so. Ends with 77 where this Python has no torch or there is no compiler."""

import importlib.util
import os
import shutil
import sys
import tempfile
import unittest

SOURCE, LIBRARY = sys.argv[1:3]
sys.path.insert(0, os.path.join(SOURCE, "env/python"))
if importlib.util.find_spec("torch") is None or shutil.which("c++") is None:
    sys.exit(77)

import extensions
import inline_calls
import own_headers
import torch
import torch.utils.cpp_extension as cpp_extension

extensions.prepare(LIBRARY)
NVCC = os.path.join(own_headers.cuda_folder(), "bin/nvcc")
os.environ["TORCH_CUDA_ARCH_LIST"] = "9.0"

# One text for both, because torch's headers take half a minute.
TEXT = r"""
#include <torch/extension.h>
torch::Tensor relu(torch::Tensor x) {
  auto y = torch::empty_like(x);
  const float* from = x.data_ptr<float>();
  float* to = y.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) to[i] = from[i] > 0 ? from[i] : 0;
  return y;
}
torch::Tensor half_sum(const at::Tensor& x) {
  auto sum = torch::zeros({1}, torch::TensorOptions().dtype(torch::kFloat32).device(x.device()));
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "half_sum", [&] {
    auto all = x.accessor<scalar_t, 2>();
    for (int i = 0; i < x.size(0); ++i)
      for (int j = 0; j < x.size(-1); ++j) sum.data_ptr<float>()[0] += static_cast<float>(all[i][j]);
  });
  return sum;
}
std::string facts(const torch::Tensor& x) {
  std::ostringstream text;
  text << x.dim() << ' ' << x.numel() << ' ' << x.size(-1) << ' ' << x.stride(0) << ' ' << x.is_contiguous() << ' '
       << x.is_cuda() << ' ' << x.nbytes() << ' ' << x.itemsize() << ' ' << x.storage_offset() << ' '
       << (x.dtype() == torch::kFloat32) << (x.scalar_type() == at::ScalarType::Half) << ' ' << x.device() .str() << ' '
       << static_cast<int>(x.get_device()) << sizeof(x.get_device()) << ' ' << (x.sizes() == torch::IntArrayRef({2, 3})) << ' ' << x.sizes().vec().size()
       << x.is_floating_point() << x.defined() << torch::Tensor().defined();
  return text.str();
}
std::vector<torch::Tensor> made(torch::IntArrayRef shape, double value, const torch::Tensor& like) {
  return {torch::full(shape, value), torch::full(shape, 3), torch::ones(shape, torch::kInt64),
          torch::zeros(shape, like.options()), torch::zeros_like(like), torch::ones_like(like, torch::kFloat64),
          torch::full_like(like, value), torch::zeros({2, 2}, at::dtype(at::kBool)), like.contiguous(), like.clone()};
}
torch::Tensor computed(const torch::Tensor& x, c10::optional<torch::Tensor> other, std::vector<int64_t> shape, bool flag) {
  auto y = torch::matmul(x, x.t()) * 0.5 + 1;
  y.mul_(3).add_(x.mean({1}, true)).sub_(x.sum(), 0.25);
  y = torch::cat({y, -y}, 1);
  if (other.has_value()) y = y / *other - 2 * y.relu();
  y = y.view(shape).transpose(0, 1).contiguous().softmax(-1) + y.view(shape).permute({1, 0}).amax({1}, true);
  y = y.unsqueeze(0).squeeze(0).narrow(0, 0, 2).flatten().reshape({2, -1}).expand({2, 2, -1}).pow(2).sqrt();
  return flag ? y.to(torch::kFloat64).sum(0) : y.select(0, 1) + torch::stack({y[0], y[1]}).logsumexp({0});
}
torch::Tensor convolved(torch::Tensor x, torch::Tensor weight) {
  auto y = torch::conv2d(x, weight, {}, {2, 2}, 1);
  return torch::conv_transpose2d(y, weight, {}, 2) .sum();
}
std::tuple<int64_t, double, bool, std::string, torch::Tensor> told(int i, float x, bool flag, std::string text) {
  return {i, x, flag, text, torch::Tensor()};
}
void checks(torch::Tensor x, long n) {
  TORCH_CHECK(x.size(0) == n, "expected ", n, " rows, not ", x.sizes());
}
uint8_t small(uint8_t x) { return x; }
double number(torch::Tensor x) { return x.item<double>(); }
void throws() { throw std::out_of_range("far"); }
int64_t named(int64_t first, int64_t second) { return 10 * first + second; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("relu", &relu, "relu");
  m.def("half_sum", &half_sum);
  m.def("facts", &facts);
  m.def("made", made);
  m.def("computed", &computed);
  m.def("convolved", &convolved);
  m.def("told", &told);
  m.def("checks", &checks);
  m.def("small", &small);
  m.def("number", &number);
  m.def("throws", &throws);
  m.def("named", &named, "", py::arg("first"), py::arg("second"));
  m.def("lambda", [](int x) { return x + 1; });
}
"""


def calls():
    """(function, arguments, keywords); tensors are made anew for each side."""
    torch.manual_seed(3)
    x = torch.randn(2, 3)
    yield "relu", (x,), {}
    yield "relu", (torch.nn.Parameter(x),), {}
    yield "relu", (x.double(),), {}
    yield "relu", (None,), {}
    yield "relu", (1,), {}
    yield "relu", (), {}
    yield "relu", (x, x), {}
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32):
        yield "half_sum", (x.to(dtype),), {}
    yield "half_sum", (x[0],), {}
    for tensor in (x, x.t(), x[:, 1:], x.half(), torch.empty(0, 4), torch.tensor(1), torch.zeros(2, 3, dtype=torch.int64)):
        yield "facts", (tensor,), {}
    yield "made", ([2, 3], 1.5, x), {}
    yield "made", ((4,), 2, x.t()), {}
    yield "made", ((4.5,), 2, x), {}
    yield "made", ("ab", 2, x), {}
    yield "computed", (x, torch.full((1,), 2.0), [2, 4], True), {}
    yield "computed", (x, None, (2, 4), False), {}
    yield "computed", (x, None, (3, 3), False), {}
    yield "computed", (x, None, (2, 4), 0), {}
    yield "computed", (x, None, (2, 4), "no"), {}
    yield "convolved", (torch.randn(1, 2, 8, 8), torch.randn(3, 2, 3, 3)), {}
    yield "told", (3, 2, True, "text"), {}
    yield "told", (-3, 2.5, None, "é"), {}
    for number in (2.5, 2**31, "3", True, torch.tensor(4), None):
        yield "told", (number, 1.0, True, ""), {}
    for number in ("1", None, True, 3, torch.tensor(2.5)):
        yield "told", (1, number, True, ""), {}
    yield "checks", (x, 2), {}
    yield "checks", (x, 3), {}
    for number in (-1, 255, 256):
        yield "small", (number,), {}
    yield "number", (torch.tensor(2.5),), {}
    yield "number", (torch.ones(2),), {}
    yield "throws", (), {}
    yield "named", (1, 2), {}
    yield "named", (1,), {"second": 2}
    yield "named", (), {"second": 2, "first": 1}
    yield "named", (1, 2), {"second": 2}
    yield "named", (1,), {"third": 2}
    yield "relu", (), {"x": x}
    yield "lambda", (3,), {}


def result_of(module, name, arguments, keywords):
    try:
        return getattr(module, name)(*arguments, **keywords)
    except Exception as error:
        return error


def comparable(value):
    if isinstance(value, torch.Tensor):
        return ("tensor", type(value), value.dtype, tuple(value.shape), value.stride(), value.tolist())
    if isinstance(value, (list, tuple)):
        return (type(value), [comparable(each) for each in value])
    # IndexError of the C++ library is one thing, its text is torch's own.
    return ("error", type(value)) if isinstance(value, Exception) else (type(value), value)


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="own-headers-")
        self.addCleanup(shutil.rmtree, self.folder, True)

    def compiled(self, cpp, cuda=None, name="extension", **options):
        return own_headers.compile_inline(name, cpp, cuda, options, self.folder)


class Same(Folder):
    def test_same_results_as_with_torchs_headers(self):
        own = extensions.bind("extension", self.compiled(TEXT))
        other = os.path.join(self.folder, "torch")
        os.mkdir(other)
        full = cpp_extension.load_inline("of_torch", TEXT, build_directory=other)
        count = 0
        for name, arguments, keywords in calls():
            with self.subTest(function=name, arguments=arguments, keywords=keywords):
                self.assertEqual(comparable(result_of(own, name, arguments, keywords)),
                                 comparable(result_of(full, name, arguments, keywords)))
                count += 1
        self.assertGreater(count, 50)

    def test_counts_of_references_stay(self):
        module = extensions.bind("extension", self.compiled(TEXT))
        x = torch.ones(2, 3)
        before = sys.getrefcount(x), x._use_count()
        for _ in range(10):
            module.relu(x)
            module.made([2], 1, x)
            result_of(module, "checks", (x, 7), {})
        self.assertEqual((sys.getrefcount(x), x._use_count()), before)


class Refusals(Folder):
    def test_what_the_headers_lack_is_for_torchs(self):
        for text in ("torch::Tensor f(torch::Tensor x) { return torch::nn::functional::relu(x); }",
                     "torch::Tensor f(torch::Tensor x) { return x.index({0}); }",
                     "#include <ATen/native/cpu/utils.h>\nvoid f() {}", "#include <Python.h>\nvoid f() {}",
                     "void f() { py::gil_scoped_release release; }",
                     "int f(int x = 3) { return x; }\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) "
                     '{ m.def("f", &f, py::arg("x") = 3); }'):
            with self.subTest(text=text), self.assertRaises(own_headers.Unsuitable):
                self.compiled(text, functions=None if "PYBIND" in text else ["f"])

    def test_options_that_only_torch_knows(self):
        for options in ({"is_python_module": False}, {"extra_include_paths": ["/tmp"]}, {"with_sycl": True}):
            with self.subTest(options=options), self.assertRaises(own_headers.Unsuitable):
                self.compiled("int f() { return 1; }", functions=["f"], **options)
        with self.assertRaises(own_headers.Unsuitable):
            self.compiled("int f() { return 1; }", name="no identifier", functions=["f"])

    def test_an_unknown_name_is_final_unless_torch_has_it(self):
        with self.assertRaises(own_headers.DoesNotCompile) as caught:
            self.compiled("at::Tensor f(at::Tensor x) { return surely_nobodys_name(x); }", functions=["f"])
        self.assertIn("surely_nobodys_name", str(caught.exception))
        self.assertNotIn("kevin_torch", str(caught.exception))
        with self.assertRaises(own_headers.Unsuitable):
            self.compiled("void f() { maybe_wrap_dim(1, 2); }", functions=["f"])

    def test_what_follows_from_an_uncertain_error_is_not_final(self):
        # The types are torch's; then the functions that have them are undeclared where they are called.
        for text in ("torch::nn::Linear made_by_me(int n) { return torch::nn::Linear(n, n); }\n"
                     "int f(int n) { made_by_me(n); return 1; }",
                     "torch::nn::Linear made_by_me(int n);\nint f(int n) { auto y = made_by_me(n); return 1; }",
                     "int f(int n) { auto here = torch::nn::Linear(n, n); return surely_nobodys_name(n); }"):
            with self.subTest(text=text), self.assertRaises(own_headers.Unsuitable):
                self.compiled(text, functions=["f"])
        with self.assertRaises(own_headers.DoesNotCompile):
            self.compiled("int g(int n) { return surely_nobodys_name(n); }\n"
                          "int f(int n) { auto here = torch::nn::Linear(n, n); return 1; }", functions=["f"])

    def test_what_a_text_declares(self):
        for text in ("int name(int x);", "std::vector<int> name;", "float *name", "auto [a, name] = f();", "struct name;",
                     "#define name 1", "at::Tensor& name(", "template <class name>"):
            self.assertTrue(own_headers.declares(text, "name"), text)
        for text in ("return name(x);", "f(x, name);", "y = name + 1;", "// int name\n", "/* int name */ name();",
                     'f("int name");', "int names; int a_name;", "else name();"):
            self.assertFalse(own_headers.declares(text, "name"), text)

    def test_an_absent_header_is_final_unless_torch_has_it(self):
        with self.assertRaises(own_headers.DoesNotCompile):
            self.compiled("#include <surely/nobodys.h>\nvoid f() {}", functions=["f"])
        with self.assertRaises(own_headers.Unsuitable):
            self.compiled("#include <torch/nn.h>\nvoid f() {}", functions=["f"])

    def test_an_overload_is_for_torchs(self):
        library = self.compiled('int f(int x) { return x; } int g(int x, int y) { return x + y; }\n'
                                'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("f", &f); m.def("f", &g); }')
        with self.assertRaises(ImportError):
            extensions.bind("extension", library)

    def test_a_missing_function_of_the_author_is_named(self):
        library = self.compiled("at::Tensor absent(at::Tensor x);", functions=["absent"])
        with self.assertRaises(OSError) as caught:
            extensions.bind("extension", library)
        self.assertEqual(own_headers.own_undefined(str(caught.exception)), "absent(at::Tensor)")

    def test_two_extensions_with_equal_names_stay_apart(self):
        modules = []
        for value in (1, 2):
            folder = tempfile.mkdtemp(dir=self.folder)
            text = f"inline int value() {{ return {value}; }}\nint f() {{ return value(); }}"
            modules.append(extensions.bind("extension", own_headers.compile_inline("extension", text, None,
                                                                                   {"functions": ["f"]}, folder)))
        self.assertEqual([module.f() for module in modules], [1, 2])


@unittest.skipUnless(os.path.exists(NVCC), "no nvcc")
class Cuda(Folder):
    TEXT = r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
template <typename scalar_t>
__global__ void scale(const scalar_t* x, torch::PackedTensorAccessor32<scalar_t, 2, torch::RestrictPtrTraits> y, float by) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < y.size(0)) y[i][0] = static_cast<scalar_t>(static_cast<float>(x[i]) * by);
}
torch::Tensor scaled(torch::Tensor x, double by) {
  TORCH_CHECK(x.is_cuda(), "x must be a CUDA tensor, not ", x.device());
  const at::cuda::OptionalCUDAGuard guard(device_of(x));
  auto y = torch::empty({x.numel(), 1}, x.options());
  cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "scaled", ([&] {
    scale<scalar_t><<<(x.numel() + 255) / 256, 256, 0, stream>>>(
        x.data_ptr<scalar_t>(), y.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>(), by);
  }));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}
"""

    def test_cuda_compiles_and_its_host_side_runs(self):
        library = self.compiled("torch::Tensor scaled(torch::Tensor x, double by);", self.TEXT, functions=["scaled"],
                                extra_cuda_cflags=["-O3", "--use_fast_math"], extra_ldflags=[""])
        module = extensions.bind("extension", library)
        with self.assertRaisesRegex(RuntimeError, "x must be a CUDA tensor, not cpu"):
            module.scaled(torch.ones(3), 2)

    def test_an_error_in_the_kernel_is_final(self):
        with self.assertRaises(own_headers.DoesNotCompile) as caught:
            self.compiled("void f();", "__global__ void k() { surely_nobodys_name(); }\nvoid f() { k<<<1, 1>>>(); }",
                          functions=["f"])
        self.assertIn("cuda.cu(4)", str(caught.exception))


    def test_an_error_of_types_in_device_code_is_final(self):
        kernel = "__global__ void k(float* x) { x[blockIdx.w] = x->y; }"
        host = "void f() { torch::Tensor t; auto x = t.data_ptr<float>(); x.at(3); }"
        self.assertTrue(self.is_final(kernel + "\nvoid f() { k<<<1, 1>>>(nullptr); }"))
        self.assertFalse(self.is_final(host))
        self.assertFalse(self.is_final("__global__ void k(float* x) { x[0] = at::numeric_limits<float>::max(); }\n"
                                       "void f() { k<<<1, 1>>>(nullptr); }"))
        self.assertTrue(self.is_final("__device__ int up(int x) { return x; }\nvoid f() { up(3); }"))

    def test_errors_in_device_code_after_one_of_torch_are_not_final(self):
        self.assertFalse(self.is_final(
            "struct P : torch::nn::ReLUOptions {};\n\n\n\n__global__ void k(P p, float* x) { x[0] = p.value; }\nvoid f() { }"))
        self.assertFalse(self.is_final(
            "__device__ torch::nn::Linear made_by_me(int n);\n__global__ void k(float* x) { made_by_me(3); }\nvoid f() { }"))

    def is_final(self, cuda):
        try:
            self.compiled("void f();", cuda, functions=["f"])
        except own_headers.DoesNotCompile:
            return True
        except own_headers.Unsuitable:
            return False
        self.fail("it compiles")


class DeviceLines(unittest.TestCase):
    def test_bodies_of_device_functions(self):
        text = ('#include <x.h>\nnamespace a {\n__global__ void k() {  // {\n  if (1) {\n  }\n}\nvoid f() {\n  k();\n}\n}\n'
                '__device__ __forceinline__ int g(int x) { return "}"[x]; }\n__host__ __device__ int h() {\n}\n'
                'template <typename T>\n__global__ void t(T x)\n{\n  x;\n}\nstatic int v[] = {\n1};\n')
        self.assertEqual(sorted(own_headers.device_lines(text)), [3, 4, 5, 6, 11, 16, 17, 18])


class Guesses(unittest.TestCase):
    def test_constant_calls_have_the_keys_of_the_real_ones(self):
        source = ('import torch.utils.cpp_extension as e\nA = "int a();"\nB = A + "int b();"\nC = ["x", "y"]\nC2 = f()\n'
                  'D = "old"\nD = "new"\nfor E in "e": pass\n'
                  'm = e.load_inline(name="m", cpp_sources=B, cuda_sources=[A], functions=C, verbose=True)\n'
                  'n = load_inline("n", A, functions=["f"], extra_cflags=C2)\nq = load_inline(name="q", cpp_sources=D)\n'
                  'r = load_inline("r", A, None, extra_cflags=["-O3"])\n')
        found = inline_calls.constant_calls(source)
        self.assertEqual(sorted(call[0] for call in found), ["m", "r"])
        name, cpp, cuda, options = next(call for call in found if call[0] == "m")
        self.assertEqual(extensions.inline_key(name, cpp, cuda, options),
                         extensions.inline_key("m", "int a();int b();", ["int a();"], {"functions": ["x", "y"]}))

    def test_a_name_with_other_values_is_no_constant(self):
        call = 'def f():\n  return load_inline("m", A)\n'
        for text in ('A = "x"\nA += "y"\n', 'A = "x"\nif h():\n  A = "y"\n', 'A = "x"\nfor A in g(): pass\n',
                     'A = "x"\ntry:\n  h()\nexcept E as A: pass\n', 'A = "x"\nwith g() as A: pass\n',
                     'A = "x"\ndef g():\n  global A\n  A = "y"\n', 'A = "x"\nprint(A := "y")\n',
                     'A = "x"\nimport y as A\n', 'A = "x"\ndef A(): pass\n', 'if h():\n  A = "x"\n',
                     'A = "x"\nmatch g():\n  case [A]: pass\n', 'A = "x"\nwhile h():\n  A = A + "y"\n', 'A: str\n'):
            with self.subTest(text=text):
                self.assertEqual(inline_calls.constant_calls(text + call), [])
        for text in ('A: str = "x"\n', 'A = "x"\ndef g(A): A = "y"\n', 'A = "x"\nclass C:\n  A = "y"\n',
                     'A = "x"\ng(lambda A: A)\n'):
            with self.subTest(text=text):
                self.assertEqual(inline_calls.constant_calls(text + call), [("m", "x", None, {})])

    def test_parameters_and_names_of_inner_scopes_hide_constants(self):
        for text in ('def f(A):\n  load_inline("m", A)\n', 'def f(*, A="y"):\n  load_inline("m", A)\n',
                     'def f():\n  for A in g():\n    load_inline("m", A)\n', 'def f(*A):\n  load_inline("m", A)\n',
                     'f = lambda A: load_inline("m", A)\n', 'def f():\n  A = g()\n  load_inline("m", A)\n',
                     'class C:\n  A = g()\n  m = load_inline("m", A)\n',
                     'def f():\n  A = "z"\n  def g():\n    nonlocal A\n    A = "w"\n  load_inline("m", A)\n'):
            with self.subTest(text=text):
                self.assertEqual(inline_calls.constant_calls('A = "x"\n' + text), [])
        self.assertEqual(inline_calls.constant_calls(
            'A = "x"\nclass C:\n  A = "y"\n  m = load_inline("m", A)\n  def f(self):\n    load_inline("n", A)\n'),
            [("m", "y", None, {}), ("n", "x", None, {})])

    def test_calls_in_functions_see_their_constants(self):
        source = ('A = "int a();"\nclass M:\n  def __init__(self):\n    A = "int b();"\n    B = A + "int c();"\n'
                  '    self.m = load_inline(name="m", cpp_sources=B)\n  def forward(self, x):\n'
                  '    return load_inline(name="n", cpp_sources=A, functions=[x])\n'
                  'def f():\n  return load_inline(name="o", cpp_sources=A)\n')
        self.assertEqual(inline_calls.constant_calls(source),
                         [("m", "int b();int c();", None, {}), ("o", "int a();", None, {})])

    def test_hostile_texts_are_no_calls(self):
        for source in ("load_inline(", "x = " + "(" * 5000, "load_inline(**{})", "load_inline(name=1, cpp_sources=[])",
                       "load_inline(*a)", "\0"):
            with self.subTest(source=source[:40]):
                self.assertIsInstance(inline_calls.constant_calls(source), list)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
