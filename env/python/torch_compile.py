#!/usr/bin/env python3
"""Times a problem's reference eagerly and through torch.compile, on one CUDA device.

    torch_compile.py --version     one JSON line about this Python's torch, without importing it
    torch_compile.py < JOB         one JSON line {"phase": ...} for each phase, then one with the result

JOB is one line: {"problem", "reference", "inputs": [{"name", "shape", "dtype", "distribution", "scale", "offset",
"role"}], "tf32", "mode" of torch.compile, "device", "seconds", "operators": the ATen operators that a reference may
call}. After {"phase": "measure"} the script waits for a line on stdin, sent when the caller holds the GPU's lock. The
result is {"torch", "device", "compile_s", "eager_us", "compiled_us", "pairs",
"max_error"}, or {"error": reason}, with "machine": true if every problem would fail on this machine.

The reference is TorchScript. It is checked as TorchScript and then run as Python, because Dynamo does not compile a
ScriptFunction.
"""

import ast
import gc
import importlib.util
import json
import math
import os
import random
import runpy
import statistics
import sys
import time
import types
import typing

LEAST_PAIRS = 20
MOST_PAIRS = 200
MOST_SLOTS = 3
WARM_UPS = 3
CLOCK_HZ = 2.0e9  # an upper bound for GPUs, so that a sleep is at least as long as requested
MOST_SLEEP_S = 0.02
WRONG_BEYOND = 0.02  # of the largest value; not explained by rounding
HEAVY_TAIL = 0.03
MIXTURE = [("normal", 1.0), ("uniform", 2.0), ("heavy-tailed", 1.0), ("normal", 8.0)]

# The syntax of TorchScript functions. Other Python syntax (imports, classes, lambdas, with, try) could access more than
# tensors.
ALLOWED_NODES = (
    ast.Module, ast.FunctionDef, ast.arguments, ast.arg, ast.Return, ast.Assign, ast.AugAssign, ast.AnnAssign,
    ast.Expr, ast.For, ast.While, ast.If, ast.Break, ast.Continue, ast.Pass, ast.Assert, ast.BinOp, ast.UnaryOp,
    ast.BoolOp, ast.Compare, ast.IfExp, ast.Call, ast.keyword, ast.Attribute, ast.Subscript, ast.Slice, ast.Name,
    ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.ListComp, ast.comprehension, ast.expr_context, ast.operator,
    ast.unaryop, ast.boolop, ast.cmpop)
ALLOWED_BUILTINS = {
    name: value for name, value in vars(__import__("builtins")).items()
    if name in ("abs", "bool", "enumerate", "float", "int", "len", "list", "max", "min", "range", "round", "str",
                "sum", "tuple", "zip")}
TYPES = {"List": typing.List, "Dict": typing.Dict, "Optional": typing.Optional, "Tuple": typing.Tuple}
# Attributes of tensors and lists that are no operators.
OTHER_ATTRIBUTES = {"shape", "dtype", "device", "ndim", "layout", "is_cuda", "T", "H", "mT", "mH", "float", "double", "half",
                    "bfloat16", "long", "int", "short", "char", "byte", "bool", "append", "extend", "items", "keys", "values"}


class Refusal(Exception):
    """This problem has no such baseline; the text is the reason."""


class MachineLacks(Exception):
    """No problem has a baseline on this machine."""


def first_line(error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:500]


def describe_version():
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return {"error": "this Python has no torch", "machine": True}
    version = runpy.run_path(os.path.join(spec.submodule_search_locations[0], "version.py"))
    return {"torch": version["__version__"], "cuda": version.get("cuda"), "folders": folders()}


def folders():
    """What this Python imports from, and where the interpreter is: what it reads in a sandbox."""
    found, program = [sys.prefix, sys.base_prefix, sys.exec_prefix, *sys.path], sys.executable
    while True:
        found.append(os.path.dirname(program))
        if not os.path.islink(program):
            break
        program = os.path.join(os.path.dirname(program), os.readlink(program))
    found += [os.path.realpath(folder) for folder in found]
    return sorted({os.path.normpath(folder) for folder in found if os.path.isabs(folder) and os.path.exists(folder)})


def operators_used(tree, allowed):
    """The NAMEs of torch.NAME. Refuses text outside the restricted language and attributes that are not `allowed`."""
    operators = set()
    known = {"torch", "math", "Tensor", *TYPES, *ALLOWED_BUILTINS}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            known.add(node.name)
        elif isinstance(node, ast.arg):
            known.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            known.add(node.id)
    for node in ast.walk(tree):
        place = f"line {getattr(node, 'lineno', '?')} of the reference"
        if not isinstance(node, ALLOWED_NODES):
            raise Refusal(f"{place}: {type(node).__name__} is not part of TorchScript as Kevin takes it")
        if isinstance(node, ast.FunctionDef) and (node.decorator_list or node not in tree.body):
            raise Refusal(f"{place}: functions are neither decorated nor nested")
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        if name.startswith("_"):
            raise Refusal(f"{place}: {name} begins with an underscore")
        if isinstance(node, ast.Name) and name not in known:
            raise Refusal(f"{place}: {name} is not known there")
        if isinstance(node, ast.FunctionDef) and (node.args.defaults or any(node.args.kw_defaults)):
            raise Refusal(f"{place}: a parameter has a default")
        if not isinstance(node, ast.Attribute):
            continue
        module = node.value.id if isinstance(node.value, ast.Name) else ""
        if module == "torch":
            operators.add(node.attr)
        if module != "math" and node.attr.removesuffix("_") not in allowed and (
                module == "torch" or node.attr not in OTHER_ATTRIBUTES):
            raise Refusal(f"{place}: {node.attr} is no operator that a reference may call")
    return operators


class ShapesAsLists(ast.NodeTransformer):
    """Makes lists of x.size() and x.shape, which are lists in TorchScript."""

    @staticmethod
    def as_list(node):
        return ast.Call(ast.Name("list", ast.Load()), [node], [])

    def visit_Call(self, node):
        self.generic_visit(node)
        all_of_it = isinstance(node.func, ast.Attribute) and node.func.attr == "size" and not node.args
        return self.as_list(node) if all_of_it and not node.keywords else node

    def visit_Attribute(self, node):
        self.generic_visit(node)
        return self.as_list(node) if node.attr == "shape" else node


def aten_module(torch, operators, direct):
    """The module `torch` of TorchScript, with the given ATen operators only. Python's torch.NAME may be missing
    (torch.linear) or have other defaults (torch.triplet_margin_loss). With `direct` they are the functions that modules
    call, which cost a few microseconds less than torch.ops.aten.NAME: of all operators but losses, whose `reduction` is
    none there by default and the mean in ATen."""
    module = types.ModuleType("aten")
    for name in sorted(operators):
        schemas = torch._C._jit_get_schemas_for_operator("aten::" + name)
        if not schemas:
            raise Refusal(f"torch.{name} is no operator on tensors")
        function = None
        if direct and not any(argument.name == "reduction" for schema in schemas for argument in schema.arguments):
            function = getattr(torch._C._VariableFunctions, name, None) or getattr(torch._C._nn, name, None)
        setattr(module, name, function or getattr(torch.ops.aten, name))
    return module


def load_reference(torch, problem, text, allowed, direct=False):
    """The reference's `forward` as a Python function, and whether it takes its parameters as one Dict."""
    if any(ord(c) < 32 and c not in "\n\t" or ord(c) == 127 for c in text):
        raise Refusal("the reference has control characters")  # what is a comment to TorchScript may be code here
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise Refusal("the reference is no Python: " + first_line(error)) from error
    operators = operators_used(tree, allowed)
    scope = {"torch": aten_module(torch, operators, False), "math": math, "Tensor": torch.Tensor, **TYPES}
    script = torch._C.CompilationUnit()
    try:
        script.define(text, scope.get)
    except Exception as error:
        raise Refusal("the reference is no TorchScript: " + first_line(error)) from error
    if direct:  # TorchScript does not know all of these functions: not einsum's, not meshgrid's
        scope["torch"] = aten_module(torch, operators, True)
    scope["__builtins__"] = ALLOWED_BUILTINS
    tree = ast.fix_missing_locations(ShapesAsLists().visit(tree))
    exec(compile(tree, f"<reference of {problem}>", "exec"), scope)
    arguments = script.find_function("forward").schema.arguments
    return scope["forward"], bool(arguments) and str(arguments[-1].type).startswith("Dict")


def draw(torch, tensor, spec, member):
    """Draws new values in place, by the keys of the problem file."""
    distribution, scale = spec["distribution"], spec["scale"]
    if distribution == "stored":
        tensor.copy_(torch.frombuffer(bytearray.fromhex(spec["stored"]), dtype=tensor.dtype).reshape(tensor.shape))
        return
    if distribution == "mixture":
        distribution, factor = MIXTURE[member]
        scale *= factor
    values = tensor if tensor.is_floating_point() else torch.empty_like(tensor, dtype=torch.float64)
    if distribution == "uniform":
        values.uniform_(-1, 1)
    elif distribution == "uniform01":
        values.uniform_(0, 1)
    elif distribution == "heavy-tailed":
        values.uniform_(-1, 1).div_(torch.rand_like(values).add_(HEAVY_TAIL))
    elif distribution == "positive":
        values.uniform_(0.01, 1.01)
    elif distribution == "signs":
        values.bernoulli_(0.5).mul_(2).sub_(1)
    else:
        values.normal_()
    values.mul_(scale).add_(spec["offset"])
    if spec.get("row_shift") and member == len(MIXTURE) - 1:
        rows = values.shape[0] if values.dim() > 1 else 1
        shifts = torch.randint(-1, 2, (rows, *[1] * (values.dim() - 1)), device=values.device)
        values.add_(shifts.to(values.dtype) * spec["row_shift"])
    if tensor.dtype == torch.bool:
        tensor.copy_(values > 0)
    elif values is not tensor:
        tensor.copy_(values.floor_())


class Slots:
    """Two or three sets of inputs (one if memory is short), drawn anew for each call."""

    def __init__(self, torch, device, specs, params_as_dict):
        self.torch, self.specs, self.params_as_dict = torch, specs, params_as_dict
        self.slots, self.last = [], -1
        while len(self.slots) < MOST_SLOTS:
            try:
                self.slots.append([torch.empty(spec["shape"], dtype=getattr(torch, spec["dtype"]), device=device)
                                   for spec in specs])
                if len(self.slots) > 1 and device.type == "cuda" and self._memory_is_short(device):
                    self.slots.pop()
                    break
            except torch.OutOfMemoryError:
                if not self.slots:
                    raise
                break

    def _memory_is_short(self, device):
        slot_bytes = sum(tensor.nbytes for tensor in self.slots[0])
        return self.torch.cuda.mem_get_info(device)[0] < 6 * slot_bytes

    def next_arguments(self):
        self.last = (self.last + 1) % len(self.slots)
        tensors, member = self.slots[self.last], random.randrange(len(MIXTURE))
        for tensor, spec in zip(tensors, self.specs):
            draw(self.torch, tensor, spec, member)
        if not self.params_as_dict:
            return tensors
        by_role = list(zip(tensors, self.specs))
        return [tensor for tensor, spec in by_role if spec["role"] != "param"] + [
            {spec["name"]: tensor for tensor, spec in by_role if spec["role"] == "param"}]


class GpuClock:
    """Times one call between two events, after flushing L2. The device sleeps until the call has been enqueued, so that
    gaps of the host are not measured."""

    def __init__(self, torch, device):
        self.torch, self.device = torch, device
        l2_bytes = torch.cuda.get_device_properties(device).L2_cache_size
        self.flush = torch.empty(2 * l2_bytes + (8 << 20), dtype=torch.uint8, device=device)
        self.sleep_s = 0.0
        self.events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]

    def synchronize(self):
        self.torch.cuda.synchronize(self.device)

    def allow_for(self, enqueue_s):
        self.sleep_s = min(max(self.sleep_s, 2 * enqueue_s + 50e-6), MOST_SLEEP_S)

    def call_us(self, function, arguments):
        start, end = self.events
        self.flush.fill_(random.randrange(256))
        self.torch.cuda._sleep(int(self.sleep_s * CLOCK_HZ))
        start.record()
        outputs = function(*arguments)
        end.record()
        end.synchronize()
        del outputs
        return start.elapsed_time(end) * 1e3


def warm_up(function, slots, clock):
    for _ in range(WARM_UPS):
        arguments = slots.next_arguments()
        clock.synchronize()
        start = time.perf_counter()
        function(*arguments)
        enqueue_s = time.perf_counter() - start
        clock.synchronize()
    clock.allow_for(enqueue_s)


def measure(sides, slots, clock, seconds):
    """The median of each side in microseconds, and the number of pairs."""
    times = [[] for _ in sides]
    began = time.perf_counter()
    while len(times[0]) < LEAST_PAIRS or (len(times[0]) < MOST_PAIRS and time.perf_counter() - began < seconds):
        for side in random.sample(range(len(sides)), len(sides)):
            times[side].append(clock.call_us(sides[side], slots.next_arguments()))
    return [statistics.median(each) for each in times], len(times[0])


def largest_difference(torch, eager, compiled):
    """Over all floating outputs. Indices may differ where two values are equal."""
    worst = 0.0
    for ours, theirs in zip(eager, compiled, strict=True):
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            raise Refusal("the result of torch.compile has another shape or type than eager's")
        if not ours.is_floating_point() or ours.numel() == 0:
            continue
        difference = torch.sub(ours, theirs).abs_().masked_fill_(ours == theirs, 0)
        error = float(difference.amax())
        magnitude = float(ours.abs().nan_to_num_(0, 0, 0).amax())
        if not error <= WRONG_BEYOND * magnitude:
            raise Refusal(f"the result of torch.compile differs by {error:.2g}; the largest value is {magnitude:.2g}")
        worst = max(worst, error)
    return worst


def results(torch, function, arguments, specs):
    """The outputs, and the values of input-outputs after the call, in a list. It writes into copies of these."""
    inouts = [i for i, spec in enumerate(specs) if spec["role"] == "inout"]  # before the parameters
    arguments = [a.clone() if i in inouts else a for i, a in enumerate(arguments)]
    outputs = function(*arguments)
    outputs = [] if outputs is None else [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
    return outputs + [arguments[i] for i in inouts]


def blame(torch, device, error):
    """The exception for a failure of torch.compile: MachineLacks if it compiles nothing (e.g. Triton without a C
    compiler), else Refusal."""
    if "CUDA error" not in str(error):  # after a CUDA error nothing works
        torch._dynamo.reset()
        try:
            torch.compile(lambda x: x + 1)(torch.ones(8, device=device))
        except Exception as nothing_works:
            return MachineLacks("torch.compile compiles nothing here: " + first_line(nothing_works))
    return Refusal("torch.compile fails: " + first_line(error))


def run(torch, job, device, clock, say):
    torch.backends.cuda.matmul.allow_tf32 = job["tf32"]
    torch.backends.cudnn.allow_tf32 = job["tf32"]
    eager, params_as_dict = load_reference(torch, job["problem"], job["reference"], set(job["operators"]))
    slots = Slots(torch, device, job["inputs"], params_as_dict)
    compiled = torch.compile(eager, dynamic=False, mode=job["mode"])
    say({"phase": "compile"})
    arguments = slots.next_arguments()
    try:
        expected = results(torch, eager, arguments, job["inputs"])
    except Exception as error:
        raise Refusal("eager fails: " + first_line(error)) from error
    clock.synchronize()
    start = time.perf_counter()
    try:
        got = results(torch, compiled, arguments, job["inputs"])
    except Exception as error:
        raise blame(torch, device, error) from error
    clock.synchronize()
    compile_s = time.perf_counter() - start
    max_error = largest_difference(torch, expected, got)
    del expected, got
    say({"phase": "measure"})
    sys.stdin.readline()
    for side in (eager, compiled):
        warm_up(side, slots, clock)
    gc.collect()
    gc.disable()
    (eager_us, compiled_us), pairs = measure([eager, compiled], slots, clock, job["seconds"])
    return {"compile_s": compile_s, "eager_us": eager_us, "compiled_us": compiled_us, "pairs": pairs,
            "max_error": max_error}


def run_on_gpu(job, say):
    say({"phase": "import torch"})
    try:
        import torch
    except Exception as error:
        raise MachineLacks("Python cannot import torch: " + first_line(error)) from error
    if not torch.cuda.is_available():
        raise MachineLacks("Python's torch cannot use a GPU")
    if job["device"] >= torch.cuda.device_count():
        raise MachineLacks(f"Python's torch sees {torch.cuda.device_count()} GPUs")
    device = torch.device("cuda", job["device"])
    torch.cuda.set_device(device)
    with torch.no_grad():
        try:
            result = run(torch, job, device, GpuClock(torch, device), say)
        except torch.OutOfMemoryError as error:
            raise Refusal("it does not fit into the GPU's memory") from error
    return {"torch": torch.__version__, "device": torch.cuda.get_device_name(device), **result}


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of torch and compilers is not part of the answers

    def say(message):
        print(json.dumps(message), file=answers, flush=True)

    try:
        say(describe_version() if "--version" in sys.argv else run_on_gpu(json.loads(sys.stdin.readline()), say))
    except (Refusal, MachineLacks) as error:
        say({"error": str(error), "machine": isinstance(error, MachineLacks)})
    except Exception as error:
        say({"error": first_line(error), "machine": False})


if __name__ == "__main__":
    main()
