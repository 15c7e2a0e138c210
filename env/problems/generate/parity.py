#!/usr/bin/env python3
"""Checks that Kevin's problems compute the same function as KernelBench's, on the same inputs and weights.

    env/problems/generate/parity.py --from CHECKOUT [ID ...]

CHECKOUT is a clone of KernelBench at commit 423217d; it is only read. Needs a Python (3.11 or newer) with torch 2.11,
numpy and einops. KernelBench's file is run unchanged except for its size constants: they are set to our `small` sizes
where that is possible, else to `full` with a batch of 2. Our reference is the TorchScript text of the problem file,
compiled by the compiler that the C++ program uses.

Prints one line a problem: the largest error in fp64 and in fp32, relative to the larger of the element and the RMS of
its row; then the number of problems within 1e-6 in fp64. Exit code 0: all of them; 1: not all; 2: invalid input;
3: torch, numpy or einops is missing.
"""

import argparse
import ast
import contextlib
import functools
import importlib.util
import itertools
import pathlib
import re
import sys
import tomllib
import types

try:
    import torch
except ImportError:  # main() says what to do
    torch = None

LIMIT = 1e-6
MOST_ASSIGNMENTS = 20000
PROBLEMS = pathlib.Path(__file__).resolve().parent.parent


class Mismatch(Exception):
    """The two problems cannot be compared; the text says why."""


# ---- Kevin's problem


def number(expression, symbols):
    """The value of an integer expression of a shape; / rounds down."""
    return int(eval(str(expression).replace("/", "//"), {"__builtins__": {}}, dict(symbols)))


@functools.cache
def operators():
    """A module `torch` with every ATen operator under its ATen name, as the C++ TorchScript compiler offers it."""
    namespace = types.ModuleType("torch")
    table = torch.jit._builtins._get_builtin_table()
    for schema in torch._C._jit_get_all_schemas():
        family, _, operator = schema.name.partition("::")
        if family == "aten" and not hasattr(namespace, operator):
            stand_in = types.SimpleNamespace()
            setattr(namespace, operator, stand_in)
            table[id(stand_in)] = schema.name
    return namespace


def compiled(text):
    unit = torch.jit.CompilationUnit()
    unit.define(text, rcb=lambda name: operators() if name == "torch" else None)
    return unit


class OurProblem:
    def __init__(self, path):
        self.file = tomllib.loads(path.read_text())
        self.id = self.file["id"]
        self.name = self.file["name"]
        self.params = [t for t in self.file["inputs"] if t.get("role") == "param"]
        self.inputs = [t for t in self.file["inputs"] if t.get("role") != "param"]
        self.unit = compiled(self.file["reference"])
        self.takes_dict = re.search(r"def forward\([^)]*: *Dict\[str, *Tensor\]", self.file["reference"])

    def shapes(self, tensors, symbols):
        return [[number(d, symbols) for d in t["shape"]] for t in tensors]

    def forward(self, inputs, params):
        if self.takes_dict:
            named = {t["name"]: value for t, value in zip(self.params, params)}
            return self.unit.forward(*inputs, named)
        return self.unit.forward(*inputs, *params)


# ---- KernelBench's problem


def assigned_names(node):
    """The names that a module-level statement assigns to: `a = b = 1`, `a, b = 1, 2`."""
    if not isinstance(node, ast.Assign):
        return []
    names = []
    for target in node.targets:
        names += target.elts if isinstance(target, ast.Tuple) else [target]
    return [name.id for name in names if isinstance(name, ast.Name)]


def slots_of(tree):
    """The integer constants of a module: (name, indices in a tuple or None, value). Equal integers of a tuple form
    one entry."""
    slots = {}
    for node in tree.body:
        constants = {}
        with contextlib.suppress(Exception):
            exec(compile(ast.Module([node], []), "constants", "exec"), {"__builtins__": {}}, constants)
        for name in assigned_names(node):
            value = constants.get(name)
            if type(value) is int:
                slots[name, None] = value
            elif isinstance(value, (tuple, list)):
                for one in {v for v in value if type(v) is int}:
                    slots[name, tuple(i for i, v in enumerate(value) if v == one)] = one
    return [(name, places, value) for (name, places), value in slots.items()]


def execute(tree, path, changes):
    """Runs KernelBench's file; `changes` replaces constants where they are assigned."""
    module = types.ModuleType("problem")
    for node in tree.body:
        exec(compile(ast.Module([node], []), str(path), "exec"), module.__dict__)
        for (name, places), value in changes.items():
            if name not in assigned_names(node):
                continue
            old = getattr(module, name)
            if places is None:
                setattr(module, name, value)
            else:
                setattr(module, name, type(old)(value if i in places else v for i, v in enumerate(old)))
    return module


def tensor_shapes(values):
    return [list(v.shape) for v in values if isinstance(v, torch.Tensor)]


def candidates(tree, full, small):
    """Changes of constants that may turn KernelBench's sizes into ours, the most likely first."""
    slots = slots_of(tree)
    options = []
    for _, _, value in slots:
        own = [s for s in full if full[s] == value and small[s] != value]
        options.append(own + [None])
    if not slots:
        yield {}
        return
    for choice in itertools.islice(itertools.product(*options), MOST_ASSIGNMENTS):
        yield {(name, places): small[s] for (name, places, _), s in zip(slots, choice) if s is not None}


def kernelbench_at(tree, path, ours, full, small):
    """KernelBench's module with constants changed so that its tensors have our shapes at `small`; None if there is no
    such change."""
    wanted = ours.shapes(ours.inputs, small)
    seen = set()
    for changes in candidates(tree, full, small):
        key = tuple(sorted((name, places or (), value) for (name, places), value in changes.items()))
        if key in seen:
            continue
        seen.add(key)
        try:
            with torch.device("meta"):
                module = execute(tree, path, changes)
                given = tensor_shapes(module.get_inputs())
                if given != wanted[: len(given)]:
                    continue
            model = build(module)
        except Exception:
            continue
        with contextlib.suppress(Mismatch):
            ordered(ours, model, small)
            return module, model
    return None


def build(module):
    torch.manual_seed(1)
    return module.Model(*module.get_init_inputs())


def parameters(model):
    """The weights of a model: its parameters, each once. Buffers are constants or running statistics."""
    return dict(model.named_parameters())


def subsequence(values, shapes):
    """The values of these shapes, in order, without those that KernelBench declares and never uses; None if a shape is
    missing."""
    rest, chosen = iter(values), []
    for shape in shapes:
        value = next((v for v in rest if list(v.shape) == shape), None)
        if value is None:
            return None
        chosen.append(value)
    return chosen


def ordered(ours, model, symbols):
    """KernelBench's parameters in the order of our file: by name where all names agree, else by position, with the
    model's own parameters before those of its layers (PyTorch's order) or after them."""
    given = parameters(model)
    wanted = ours.shapes(ours.params, symbols)
    by_name = {name.replace(".", "_"): value for name, value in given.items()}
    own = {name: value for name, value in given.items() if "." not in name}
    last = {name: value for name, value in given.items() if name not in own} | own
    orders = [[by_name.get(t["name"]) for t in ours.params], list(given.values()), list(last.values())]
    for values in orders:
        chosen = subsequence([v for v in values if v is not None], wanted)
        if chosen is not None:
            return chosen
    raise Mismatch(f"parameters are {[list(v.shape) for v in given.values()]}, ours {wanted}"[:300])


def randomise(values):
    """Adds noise to weights that PyTorch initialises to a constant; a constant would hide errors."""
    with torch.no_grad():
        for value in values:
            if value.numel() < 2 or float(value.std()) == 0:
                value.add_(torch.randn_like(value) * 0.5)


def initialiser_note(ours, values, symbols):
    """The first weight whose standard deviation differs from PyTorch's initialiser by more than 10 %, as text."""
    for tensor, value in zip(ours.params, values):
        spread = float(value.std()) if value.numel() > 500 else 0
        if spread == 0:
            continue
        scale = tensor.get("scale", 1.0)
        if isinstance(scale, str):
            root = re.fullmatch(r"1/sqrt\((.*)\)", scale)
            scale = number(root[1], symbols) ** -0.5 if root else number(scale, symbols)
        own = {"uniform": 3**-0.5, "normal": 1.0}.get(tensor.get("distribution", "mixture"))
        if own is None or abs(own * scale / spread - 1) > 0.1:
            drawn = "?" if own is None else f"{own * scale:.3g}"
            return f"{tensor['name']} starts with a deviation of {spread:.3g} there, {drawn} here"
    return ""


@contextlib.contextmanager
def dropout_from(noise):
    """KernelBench's dropout uses our explicit noise input as its mask."""
    if noise is None:
        yield
        return
    original = torch.nn.Dropout.forward
    torch.nn.Dropout.forward = lambda self, x: torch.where(noise >= self.p, x / (1 - self.p), torch.zeros_like(x))
    try:
        yield
    finally:
        torch.nn.Dropout.forward = original


@contextlib.contextmanager
def randn_from(drawn):
    """Random numbers that KernelBench draws inside forward are explicit inputs of our problem."""
    if not drawn:
        yield
        return
    original, queue = torch.randn, list(drawn)
    torch.randn = lambda *a, **k: queue.pop(0)
    try:
        yield
    finally:
        torch.randn = original


def error_of(ours, theirs):
    if list(ours.shape) != list(theirs.shape):
        raise Mismatch(f"output {list(ours.shape)} there {list(theirs.shape)}")
    if ours.dtype in (torch.int64, torch.bool):
        return float((ours != theirs).sum())
    a, b = ours.double(), theirs.double()
    if b.numel() == 0 or bool(torch.equal(a, b)):
        return 0.0
    rms = b.square().mean().sqrt() if b.dim() == 0 or b.shape[-1] == 1 else b.square().mean(-1, True).sqrt()
    return float(((a - b).abs() / torch.maximum(b.abs(), rms).clamp_min(1e-300)).max())


def plain(tensor):
    return tensor.get("dtype", "float32") == "float32" and tensor.get("distribution", "mixture") in (
        "mixture", "normal", "uniform", "heavy-tailed") and "structure" not in tensor


def compare(ours, module, model, symbols, dtype, zero_mean):
    torch.manual_seed(7)
    model = model.to(dtype)
    for name, value in vars(model).items():
        if isinstance(value, torch.Tensor):  # `to` converts parameters and buffers only
            setattr(model, name, value.to(dtype))
    params = ordered(ours, model, symbols)
    given = module.get_inputs()
    tensors = iter(ours.inputs)
    theirs, mine = [], []
    for value in given:
        if isinstance(value, torch.Tensor):
            tensor = next(tensors)
            if value.is_floating_point():
                if zero_mean and plain(tensor):
                    value = torch.randn(value.shape, dtype=torch.float32)
                value = value.to(dtype)
            mine.append(value)
        theirs.append(value)
    drawn_inside = list(zip(ours.inputs, ours.shapes(ours.inputs, symbols)))[len(mine) :]
    extra = [torch.rand(s, dtype=dtype) if t["name"] == "noise" else torch.randn(s, dtype=dtype)
             for t, s in drawn_inside]
    mine += extra
    noise = extra[0] if extra and drawn_inside[0][0]["name"] == "noise" else None
    with torch.no_grad():
        result = ours.forward([v.clone() for v in mine], [p.detach().clone() for p in params])
        model.train()
        with dropout_from(noise), randn_from([] if noise is not None else extra):
            expected = model(*theirs)
    if dtype == torch.float64 and expected.dtype == torch.float32:
        raise Mismatch("the model there computes in fp32")
    return error_of(result, expected)


def check_full_sizes(ours, tree, path):
    """Input shapes at `full` must be those of KernelBench's unchanged file."""
    with torch.device("meta"):
        shapes = tensor_shapes(execute(tree, path, {}).get_inputs())
    own = ours.shapes(ours.inputs, ours.file["sizes"]["full"])
    if shapes != own[: len(shapes)]:
        raise Mismatch(f"full: inputs are {shapes} there, {own} here")


def run(ours, path):
    """(fp64 error, fp32 error, size, note)"""
    tree = ast.parse(path.read_text())
    check_full_sizes(ours, tree, path)
    sizes = ours.file["sizes"]
    size, symbols = "small", sizes["small"]
    found = kernelbench_at(tree, path, ours, sizes["full"], symbols)
    if found is None:
        size, symbols = "full, batch 2", dict(sizes["full"], B=min(2, sizes["full"].get("B", 1)))
        found = kernelbench_at(tree, path, ours, sizes["full"], symbols)
    if found is None:
        raise Mismatch("no change of its constants gives our shapes")
    module, model = found
    values = ordered(ours, model, symbols)
    note = initialiser_note(ours, values, symbols)
    randomise(values)
    errors = []
    for dtype in (torch.float64, torch.float32):
        with_dtype = max(compare(ours, module, model, symbols, dtype, zero_mean) for zero_mean in (False, True))
        errors.append(with_dtype)
        if dtype == torch.float64:
            model = model.float()
    return errors[0], errors[1], size, note


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="checkout", required=True, type=pathlib.Path, metavar="CHECKOUT")
    parser.add_argument("ids", nargs="*", metavar="ID", help="level1/19, or level1; all when left out")
    options = parser.parse_args()
    missing = [name for name in ("torch", "numpy", "einops") if importlib.util.find_spec(name) is None]
    if missing or torch is None:
        print(f"parity.py: {sys.executable} cannot import {', '.join(missing) or 'torch'}\n"
              f"next: {sys.executable} -m pip install torch==2.11.0 numpy einops, or use a Python that has them",
              file=sys.stderr)
        return 3
    root = options.checkout / "KernelBench"
    if not (root / "level1").is_dir():
        print(f"{root / 'level1'}: no such folder\nnext: clone github.com/ScalingIntelligence/KernelBench and give its "
              "folder with --from", file=sys.stderr)
        return 2
    torch.set_default_device("cpu")
    passed = total = 0
    for path in sorted(PROBLEMS.glob("level[123]/*.toml")):
        ours = OurProblem(path)
        if options.ids and not any(ours.id == i or ours.id.startswith(i + "/") for i in options.ids):
            continue
        total += 1
        level, position = ours.id.split("/")
        theirs = next((root / level).glob(f"{position}_*.py"), None)
        try:
            if theirs is None:
                raise Mismatch("not in the checkout")
            fp64, fp32, size, note = run(ours, theirs)
            ok = fp64 <= LIMIT
            line = f"fp64 {fp64:8.1e}  fp32 {fp32:8.1e}  {size}" + (f"  ({note})" if note else "")
        except (Mismatch, RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
            ok, line = False, f"{type(error).__name__}: {error}"[:600]
        passed += ok
        print(f"{'ok  ' if ok else 'FAIL'} {ours.id:<11} {ours.name[:40]:<40} {line}", flush=True)
    print(f"{passed}/{total} within {LIMIT} in fp64")
    return 0 if passed == total else 1


if __name__ == "__main__":
    sys.exit(main())
