"""Proves an exported file: loads it and the original, compares and times them. One job on standard input, a JSON object:

    {"output": OUT.py, "importer": folder of env/import, "import": the job of the import, "precision": "fp32",
     "device": "cpu" or "cuda:0", "seconds": of timing, "compile_s": limit of torch.compile}

Answers are lines: {"phase": ...}, {"wait": true} before the times (a line on standard input answers), then {"max_error", "rounded",
"tolerance", "checks": [...], "eager_us", "kernel_us", "compiled_us", "speedup", "compile_speedup": [value, low, high] or null,
"no_compile": reason} or {"error": ...}."""

import copy
import importlib.machinery
import importlib.util
import json
import math
import os
import random
import statistics
import sys
import time
import warnings

TOLERANCES = {"fp32": 1e-4, "fp16": 4e-3, "bf16": 3e-2}  # of the result's magnitude
NORMAL_99 = 2.576


class Failed(Exception):
    pass


def importer(folder):
    spec = importlib.machinery.ModuleSpec("kevin_importer", None, is_package=True)
    spec.submodule_search_locations.append(folder)
    sys.modules["kevin_importer"] = importlib.util.module_from_spec(spec)
    return importlib.import_module("kevin_importer.describe"), importlib.import_module("kevin_importer.class_case")


def load(path):
    name = os.path.basename(path).removesuffix(".py")
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Pair:
    """The original and what takes its place, on the device and in the type of the import, with inputs for both."""

    def __init__(self, job, torch):
        self.torch, self.job = torch, job
        describe, class_case = importer(job["importer"])
        self.case = describe.case_of(job["import"])
        self.exported = load(job["output"])
        name = self.case.origin["class"]
        self.replacement = getattr(self.exported, name.rpartition(".")[2])
        self.original = self.case.target
        if self.case.is_module:
            self.original.train(not job["import"].get("eval"))
            init = job["import"].get("init") or {}
            self.replacement, _ = class_case.construct(sys.modules["kevin_imported"], self.replacement, name, init)
            self.replacement.train(self.original.training)
            if dtype := job["import"].get("dtype"):
                class_case.cast_module(self.replacement, getattr(torch, dtype))
            ours, theirs = self.replacement.state_dict(), self.original.state_dict()
            if list(ours) != list(theirs):
                raise Failed("the state_dict has other names than the original's")
            self.replacement.load_state_dict(theirs)
            for module in (self.original, self.replacement):
                module.to(job["device"])

    def moved(self, tensors):
        return [t.to(self.job["device"]) for t in tensors]

    def inputs(self, seed, shape=None):
        """The problem's input tensors. `shape`: of the exported file; else that of the file's own inputs."""
        self.torch.manual_seed(seed)
        if shape is not None:
            return self.exported.example_inputs(shape, self.job["device"])[:len(self.case.tensors)]
        fresh = self.case.fresh(seed)
        if fresh is not None:
            return self.moved(fresh)
        return self.moved([(self.torch.randn_like(v) * v.std(correction=0) + v.mean())  # example inputs: of the same spread
                           if v.is_floating_point() and v.numel() > 1 else v for v in self.case.tensors])

    def call(self, function, inputs):
        return self.case.given.call(function, inputs)

    def copies(self, inputs):
        """For one side: the original may write into its arguments."""
        return [t.clone() if place in self.exported.INOUTS else t for place, t in enumerate(inputs)]

    def answers(self, function, inputs):
        """What it returns, and the arguments that it writes into, as a list."""
        inputs = self.copies(inputs)
        return self.leaves(self.call(function, inputs)) + [inputs[place] for place in self.exported.INOUTS]

    def leaves(self, outputs):
        from torch.utils._pytree import tree_leaves
        return [one for one in tree_leaves(outputs) if one is not None]


def difference(torch, ours, theirs, exact=None):
    """The largest difference, of the magnitude of the results. Elements of ours that are at least as near to `exact` do not count."""
    worst = 0.0
    exact = exact or [None] * len(theirs)
    if len(ours) != len(theirs):
        raise Failed(f"it returns {len(ours)} tensors, the original {len(theirs)}")
    for one, other, result in zip(ours, theirs, exact):
        if one.shape != other.shape or one.dtype != other.dtype:
            raise Failed(f"it returns {list(one.shape)} {one.dtype}, the original {list(other.shape)} {other.dtype}")
        if not one.is_floating_point():
            worst = max(worst, float((one != other).double().mean()))
            continue
        one, other = one.double(), other.double()
        same = (one == other) | (one.isnan() & other.isnan())
        gap = torch.where(same, 0.0, (one - other).abs())
        if result is not None:
            finite = one.isfinite() & other.isfinite() & result.isfinite()
            gap = torch.where(finite & ((one - result).abs() <= (other - result).abs()), 0.0, gap)
        finite = other[other.isfinite()]
        magnitude = float(finite.abs().max()) if finite.numel() else 1.0
        largest = float(gap.max()) if gap.numel() else 0.0
        worst = max(worst, largest / max(magnitude, 1e-30) if math.isfinite(largest) else math.inf)
    return worst


def exact_answers(pair, torch, inputs):
    """The original's answers in float64; None where it does not run so."""
    def exact(v):
        return v.double() if v.is_floating_point() else v
    original = pair.original
    try:
        if pair.case.is_module:
            original = copy.deepcopy(original)
            original._apply(exact)
        return [exact(v) for v in pair.answers(original, [exact(v) for v in inputs])]
    except Exception:
        return None


def compare(pair, torch, replacement, inputs):
    """The largest difference, and whether elements were left out: a choice (topk, a comparison) that 16 bits of the original turn to
    the other side changes results as a whole, and is no fault of a replacement that is nearer to the exact ones."""
    theirs, ours = pair.answers(pair.original, inputs), pair.answers(replacement, inputs)
    worst = difference(torch, ours, theirs)
    if worst > TOLERANCES[pair.job["precision"]]:
        exact = exact_answers(pair, torch, inputs)
        if exact is not None and [v.shape for v in exact] == [v.shape for v in theirs]:
            return difference(torch, ours, theirs, exact), True
    return worst, False


def prove_equal(pair, torch):
    worst, rounded = 0.0, False
    others = len(pair.exported.SHAPES) if len(pair.exported.SHAPES) > 1 else 0
    for seed, shape in [(11, None), (12, None), (13, None), *((20 + shape, shape) for shape in range(others))]:
        inputs = pair.inputs(seed, shape)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("error")  # a warning says that the original ran in its place
            found, left_out = compare(pair, torch, pair.replacement, inputs)
        worst, rounded = max(worst, found), rounded or left_out
    if worst > TOLERANCES[pair.job["precision"]]:
        raise Failed(f"its outputs differ from the original's by {worst:.2g} of their magnitude")
    return worst, rounded


def tensors_of(pair, inputs):
    """The operator's arguments for these inputs."""
    tensors = list(inputs)
    if pair.case.is_module:
        tensors += pair.exported._states_of(pair.replacement)
    return [t.detach() for t in tensors]


def prove_operator(pair, torch):
    inputs = tensors_of(pair, pair.inputs(14))
    operators = getattr(torch.ops, pair.exported.NAMESPACE)
    torch.library.opcheck(operators.forward.default, tuple(inputs))
    torch.library.opcheck(operators.run.default, tuple(inputs))


def prove_gradient(pair, torch):
    """With gradients the original runs, and its gradients come out."""
    inputs = [v.requires_grad_() if v.is_floating_point() else v for v in pair.inputs(15)]
    wanted = [v for v in inputs if v.requires_grad]
    if not wanted or pair.exported.INOUTS:  # autograd has no in-place writes into leaves
        return False
    found = []
    for function in (pair.original, pair.replacement):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outputs = [o for o in pair.leaves(pair.call(function, inputs)) if o.requires_grad]
        if not outputs:
            return False
        found.append(torch.autograd.grad([o.float().sum() for o in outputs], wanted, allow_unused=True))
    for ours, theirs in zip(found[1], found[0]):
        if (ours is None) != (theirs is None) or (ours is not None and not torch.allclose(ours, theirs, equal_nan=True)):
            raise Failed("its gradients are not the original's")
    return True


def prove_compile(pair, torch):
    """Captured whole, without a break in the graph."""
    inputs = pair.inputs(16)
    with torch.no_grad():
        compiled = torch.compile(pair.replacement, fullgraph=True, backend="aot_eager")
        found, _ = compare(pair, torch, compiled, inputs)
    if found > TOLERANCES[pair.job["precision"]]:
        raise Failed("under torch.compile its outputs differ from the original's")
    torch._dynamo.reset()


def timer(pair, torch):
    def seconds(function, inputs, calls):
        in_order, by_name = pair.case.given.values(pair.copies(inputs))
        start = time.perf_counter()
        for _ in range(calls):
            function(*in_order, **by_name)
        if pair.job["device"] != "cpu":
            torch.cuda.synchronize()
        return (time.perf_counter() - start) / calls
    return seconds


def compiled_original(pair, torch, inputs):
    """The original under torch.compile, warm; or the reason why not."""
    try:
        compiled = torch.compile(copy.deepcopy(pair.original) if pair.case.is_module else pair.original)
        for _ in range(2):
            pair.answers(compiled, inputs)
        return compiled, None
    except Exception as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        return None, f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]


def interval(ratios):
    """The median with its 99 % interval of order statistics: rounds that others on the machine disturbed count once."""
    ratios = sorted(ratios)
    below = max(0, math.floor(len(ratios) / 2 - NORMAL_99 * math.sqrt(len(ratios)) / 2))
    return [statistics.median(ratios), ratios[below], ratios[-1 - below]]


def timed(pair, torch, say):
    """Times in rounds: each side once, in random order, so that the load of the machine meets all."""
    seconds = timer(pair, torch)
    inputs = pair.inputs(17)
    sides = {"kernel": pair.replacement, "eager": pair.original}
    no_compile = "not asked for"
    with torch.no_grad():
        if pair.job.get("compile", True):
            say({"phase": "torch.compile of the original"})
            compiled, no_compile = compiled_original(pair, torch, inputs)
            if compiled is not None:
                sides["compiled"] = compiled
        say({"phase": "time"})
        say({"wait": True})
        sys.stdin.readline()
        calls = {}
        for name, function in sides.items():
            seconds(function, inputs, 1)
            calls[name] = max(1, min(1000, round(2e-3 / max(seconds(function, inputs, 2), 1e-7))))
        times = {name: [] for name in sides}
        end = time.perf_counter() + pair.job.get("seconds", 3)
        while len(times["eager"]) < 12 or (time.perf_counter() < end and len(times["eager"]) < 400):
            for name in random.sample(list(sides), len(sides)):
                times[name].append(seconds(sides[name], inputs, calls[name]))
    found = {f"{name}_us": statistics.median(values) * 1e6 for name, values in times.items()}
    found["speedup"] = interval([e / k for e, k in zip(times["eager"], times["kernel"])])
    found["compile_speedup"] = interval([c / k for c, k in zip(times["compiled"], times["kernel"])]) \
        if "compiled" in times else None
    found["no_compile"] = no_compile
    return found


def prove(job, say):
    import torch
    say({"phase": "build"})
    pair = Pair(job, torch)
    say({"phase": "compare"})
    checks = ["outputs", "state_dict"] if pair.case.is_module else ["outputs"]
    error, rounded = prove_equal(pair, torch)
    say({"phase": "opcheck"})
    prove_operator(pair, torch)
    checks.append("opcheck")
    if prove_gradient(pair, torch):
        checks.append("gradients")
    say({"phase": "torch.compile(fullgraph=True)"})
    prove_compile(pair, torch)
    checks.append("fullgraph")
    found = timed(pair, torch, say)
    say({"max_error": error, "rounded": rounded, "tolerance": TOLERANCES[job["precision"]], "checks": checks, **found})


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(message):
        print(json.dumps(message), file=answers, flush=True)

    sys.dont_write_bytecode = True
    job = json.loads(sys.stdin.readline())
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != os.path.dirname(os.path.abspath(__file__))]
    try:
        prove(job, say)
    except Failed as failure:
        say({"error": str(failure)})
    except Exception as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        say({"error": f"{type(error).__name__}: " + "\n".join(lines[:12])[:2000]})


if __name__ == "__main__":
    main()
