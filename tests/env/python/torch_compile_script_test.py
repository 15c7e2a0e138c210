"""The parts of env/python/torch_compile.py that need no GPU: torch_compile_script_test.py SOURCE_TREE
Ends with 77 (skipped) where this Python has no torch."""

import ast
import collections
import glob
import json
import os
import re
import subprocess
import sys
import types
import unittest

source_tree = sys.argv.pop(1)
script = source_tree + "/env/python/torch_compile.py"
sys.dont_write_bytecode = True
sys.path.insert(0, source_tree + "/env/python")
import torch_compile  # noqa: E402

try:
    import tomllib
    import torch
except ImportError as error:
    print("skipped:", error)
    sys.exit(77)


with open(source_tree + "/env/problem/reference_operators.cc", encoding="utf-8") as source:
    ALLOWED = set(" ".join(re.findall(r'^    "(.*) "', source.read(), re.MULTILINE)).split())


def load(text):
    return torch_compile.load_reference(torch, "test", text, ALLOWED)


def spec(shape, **others):
    return {"name": "x", "shape": shape, "dtype": "float32", "distribution": "mixture", "scale": 1.0, "offset": 0.0,
            "role": "input", **others}


class FakeClock:
    """Says whose call it was."""

    def __init__(self, times):
        self.times, self.calls = times, []

    def call_us(self, function, arguments):
        self.calls.append((function, float(arguments[0].sum())))
        return self.times[function]


class Reference(unittest.TestCase):
    def test_operators_mean_what_they_mean_in_torchscript(self):
        x, y, weight = torch.randn(4, 8), torch.randn(4, 8), torch.randn(3, 8)
        forward, as_dict = load("def forward(x, w):\n    return torch.gelu(torch.linear(x, w))\n")
        self.assertTrue(torch.equal(forward(x, weight), torch.nn.functional.gelu(x @ weight.t())))
        self.assertFalse(as_dict)
        forward, _ = load("def forward(x, y):\n    return torch.mse_loss(x, y)\n")  # Python's own has another default
        self.assertTrue(torch.allclose(forward(x, y), ((x - y) ** 2).mean()))
        forward, _ = load("def forward(x):\n    return x.view([1] + x.size() + [1]) + x.shape[1]\n")
        self.assertEqual(list(forward(x).shape), [1, 4, 8, 1])

    def test_losses_are_means_by_default_in_every_form(self):
        a, b, c = torch.rand(4, 8), torch.rand(4, 8), torch.rand(4, 8)
        sign, classes = torch.ones(4, 8), torch.tensor([1, 0, 7, 3])
        calls = {"mse_loss": (a, b), "l1_loss": (a, b), "smooth_l1_loss": (a, b), "huber_loss": (a, b), "kl_div": (a, b),
                 "cross_entropy_loss": (a, classes), "nll_loss": (a, classes), "triplet_margin_loss": (a, b, c),
                 "binary_cross_entropy": (a, b), "binary_cross_entropy_with_logits": (a, b),
                 "hinge_embedding_loss": (a, sign), "cosine_embedding_loss": (a, b, torch.ones(4)),
                 "margin_ranking_loss": (a, b, sign), "soft_margin_loss": (a, sign)}
        for name, arguments in sorted(calls.items()):
            names = ", ".join(f"x{i}" for i in range(len(arguments)))
            for direct in (False, True):
                with self.subTest(name, direct=direct):
                    forward, _ = torch_compile.load_reference(
                        torch, "test", f"def forward({names}):\n    return torch.{name}({names})\n", ALLOWED, direct)
                    self.assertEqual(list(forward(*arguments).shape), [])

    def test_parameters_as_one_dict(self):
        forward, as_dict = load("def forward(x, p: Dict[str, Tensor]):\n    return x + p['w_' + str(1)]\n")
        self.assertTrue(as_dict)
        slots = torch_compile.Slots(torch, torch.device("cpu"),
                                    [spec([2]), spec([2], name="w_1", role="param")], as_dict)
        arguments = slots.next_arguments()
        self.assertTrue(torch.equal(forward(*arguments), arguments[0] + arguments[1]["w_1"]))

    def test_dynamo_takes_every_problem_of_level_1_whole(self):
        for path in sorted(glob.glob(source_tree + "/env/problems/level1/*.toml")):
            with open(path, "rb") as file, self.subTest(path):
                torch_compile.load_reference(torch, path, tomllib.load(file)["reference"], ALLOWED)
        for text in ("def forward(x):\n    return torch.softmax(x * 2, 1)\n",
                     "def forward(x):\n    y = x\n    for i in range(3):\n        y = torch.relu(y) + i\n    return y\n"):
            forward, _ = load(text)
            x = torch.randn(4, 8)
            compiled = torch.compile(forward, backend="eager", fullgraph=True)
            self.assertEqual(torch_compile.largest_difference(torch, forward(x), compiled(x)), 0)

    def test_every_problem_loads_with_the_direct_functions(self):
        paths = sorted(glob.glob(source_tree + "/env/problems/*/*.toml"))
        self.assertGreater(len(paths), 300)
        for path in paths:
            with open(path, "rb") as file, self.subTest(path):
                text = tomllib.load(file)["reference"]
                torch_compile.load_reference(torch, path, text, ALLOWED, direct=True)
        x, y = torch.randn(4, 8), torch.randn(8, 3)
        forward, _ = torch_compile.load_reference(
            torch, "test", "def forward(x, y):\n    return torch.einsum('ij,jk->ik', [x, y])\n", ALLOWED, direct=True)
        self.assertTrue(torch.allclose(forward(x, y), x @ y, atol=1e-5))

    def test_what_is_more_than_tensor_code_is_refused(self):
        for body in ("import os", "x.__class__", "torch.jit.is_scripting()", "torch.hub.load('a', 'b')", "open('f')",
                     "(lambda: x)()", "torch.save(x, 'f')", "torch.from_file('f')", "torch._C", "__import__('os')",
                     "getattr(x, 'data')", "print(x)", "torch.no_such_operator(x)", "with_x(x)", "x.numpy().tofile('f')", "x.tofile('f')",
                     "# a comment\r    x.numpy().tofile('f')", "torch.manual_seed(1)", "x.set_(x)"):
            for text in (f"def forward(x):\n    {body}\n    return x\n",
                         f"def forward(x):\n    if not torch.jit.is_scripting():\n        {body}\n    return x\n"):
                with self.subTest(text), self.assertRaises(torch_compile.Refusal):
                    forward, _ = load(text)
                    forward(torch.ones(2))
        for text in ("def forward(x, y=torch.from_file('f', True, 8)):\n    return x\n",
                     "import os\ndef forward(x):\n    return x\n", "@torch.jit.ignore\ndef forward(x):\n    return x\n",
                     "x = 1\n", "def forward(x", "class A:\n    pass\n"):
            with self.subTest(text), self.assertRaises(torch_compile.Refusal):
                load(text)


class Inputs(unittest.TestCase):
    def draw(self, member=0, **others):
        each = spec([200_000], **others)
        tensor = torch.empty(each["shape"], dtype=getattr(torch, each["dtype"]))
        torch_compile.draw(torch, tensor, each, member)
        return tensor

    def test_distributions(self):
        for member, deviation in enumerate((1, 2 / 3 ** 0.5, None, 8)):
            values = self.draw(member)
            self.assertAlmostEqual(float(values.mean()), 0, delta=0.2)
            if deviation:
                self.assertAlmostEqual(float(values.std()) / deviation, 1, delta=0.05)
        self.assertGreater(float(self.draw(2).abs().max()), 20)
        values = self.draw(distribution="uniform01", scale=3.0, offset=5.0)
        self.assertTrue(5 <= float(values.min()) < 5.1 and 7.9 < float(values.max()) <= 8)
        self.assertGreater(float(self.draw(distribution="positive").min()), 0)
        self.assertEqual(set(self.draw(distribution="signs").tolist()), {-1, 1})

    def test_shifted_rows(self):
        each = spec([600, 100], row_shift=150.0)
        tensor = torch.empty(each["shape"])
        for member in range(len(torch_compile.MIXTURE)):
            torch_compile.draw(torch, tensor, each, member)
            rows = collections.Counter((tensor.mean(1) / 150).round().int().tolist())
            if member < len(torch_compile.MIXTURE) - 1:
                self.assertEqual(set(rows), {0})
            else:
                self.assertEqual(set(rows), {-1, 0, 1})
                self.assertGreater(min(rows.values()), 140)
        line = torch.empty(1000)
        for _ in range(20):
            torch_compile.draw(torch, line, spec([1000], row_shift=150.0), len(torch_compile.MIXTURE) - 1)
            self.assertLess(float(line.std()), 10)

    def test_other_types(self):
        whole = self.draw(dtype="int64", distribution="uniform01", scale=10.0)
        self.assertEqual(set(whole.tolist()), set(range(10)))
        self.assertAlmostEqual(float(self.draw(dtype="bool").float().mean()), 0.5, delta=0.02)
        self.assertTrue(self.draw(dtype="bfloat16").isfinite().all())


class Measuring(unittest.TestCase):
    def test_pairs_in_random_order_on_new_inputs(self):
        clock = FakeClock({"eager": 3.0, "compiled": 2.0})
        slots = torch_compile.Slots(torch, torch.device("cpu"), [spec([50])], False)
        medians, pairs = torch_compile.measure(["eager", "compiled"], slots, clock, 0)
        self.assertEqual((medians, pairs), ([3.0, 2.0], torch_compile.LEAST_PAIRS))
        self.assertEqual(len({total for _, total in clock.calls}), 2 * pairs)
        firsts = {clock.calls[2 * pair][0] for pair in range(pairs)}
        self.assertEqual(firsts, {"eager", "compiled"})

    def test_differences(self):
        infinite = torch.tensor([1.0, float("inf"), -2.0])
        near = infinite + torch.tensor([0.0, 0.0, 1e-3])
        self.assertAlmostEqual(torch_compile.largest_difference(torch, [infinite], [near]), 1e-3, delta=1e-6)
        for other in (infinite + 0.1, infinite[:2], infinite.double(), torch.tensor([1.0, float("nan"), -2.0])):
            with self.subTest(other), self.assertRaises(torch_compile.Refusal):
                torch_compile.largest_difference(torch, [infinite], [other])
        self.assertEqual(torch_compile.largest_difference(torch, [torch.tensor([1])], [torch.tensor([2])]), 0)


    def test_results_have_the_values_that_were_written(self):
        def forward(cache, x):
            cache.add_(x)
            return cache * 2

        cache, x = torch.ones(3), torch.ones(3)
        specs = [{"role": "inout"}, {"role": "input"}]
        out, written = torch_compile.results(torch, forward, [cache, x], specs)
        self.assertEqual((out.tolist(), written.tolist(), cache.tolist()), ([4.0] * 3, [2.0] * 3, [1.0] * 3))
        self.assertEqual(len(torch_compile.results(torch, lambda cache, x: None, [cache, x], specs)), 1)


class Blame(unittest.TestCase):
    def of(self, compile_function, message="it fails"):
        made_up = types.SimpleNamespace(compile=compile_function, ones=torch.ones,
                                        _dynamo=types.SimpleNamespace(reset=lambda: None))
        return torch_compile.blame(made_up, torch.device("cpu"), RuntimeError(message + "\nand more"))

    def test_the_problem_or_the_machine(self):
        def no_compiler(function):
            raise RuntimeError("no C compiler")

        works = self.of(lambda function: function)
        self.assertEqual((type(works), str(works)), (torch_compile.Refusal, "torch.compile fails: RuntimeError: it fails"))
        self.assertIsInstance(self.of(no_compiler), torch_compile.MachineLacks)
        self.assertIn("no C compiler", str(self.of(no_compiler)))
        self.assertIsInstance(self.of(no_compiler, "CUDA error: an illegal memory access"), torch_compile.Refusal)


class Program(unittest.TestCase):
    def ask(self, *arguments, job=""):
        done = subprocess.run([sys.executable, script, *arguments], input=job, capture_output=True, text=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def test_version(self):
        [answer] = self.ask("--version")
        folders = answer.pop("folders")
        self.assertEqual(answer, {"torch": torch.__version__, "cuda": torch.version.cuda})
        for needed in (os.path.dirname(os.path.dirname(torch.__file__)), os.path.dirname(sys.executable)):
            self.assertIn(needed, folders)

    @unittest.skipIf(torch.cuda.is_available(), "there is a GPU")
    def test_without_a_gpu(self):
        job = {"problem": "p", "reference": "def forward(x):\n    return x\n", "inputs": [], "tf32": False, "mode": "default",
               "device": 0, "seconds": 0}
        answers = self.ask(job=json.dumps(job) + "\n")
        self.assertEqual(answers[-1], {"error": "Python's torch cannot use a GPU", "machine": True})
        self.assertEqual(self.ask(job="no JSON\n")[-1]["machine"], False)


if __name__ == "__main__":
    unittest.main()
