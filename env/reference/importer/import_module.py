"""Turns a person's PyTorch module into what a problem file says, for `kevin import` (tools/import).

    import_module.py             one job a line on standard input, each a JSON object:
                                 {"file": path} or {"function": "module:name", "examples": path}, and "eval": bool,
                                 "distribution": null or a name, "small": null or {symbol: number}
    import_module.py --version   answers {"torch": version} without importing torch

Answers in lines: {"phase": ...} while at it, then either what was found or {"error": what, "next": what to do}. Each
job runs in a process of its own, which ends with it: what a file does to Python or torch stays there.
"""

import importlib
import importlib.util
import json
import os
import runpy
import sys

COMPARED_BYTES = 256 << 20
COMPARED_OPERATIONS = 5e10
TOLERANCE = 1e-4  # of the result's magnitude, in float32: the order of additions may differ
MANY_PARAMETERS = 16  # above it they are one Dict (env/problem.h)
LARGE_INDEX = 1 << 31


def describe_version():
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return {"error": "this Python has no torch", "machine": True}
    version = runpy.run_path(os.path.join(spec.submodule_search_locations[0], "version.py"))
    return {"torch": version["__version__"], "cuda": version.get("cuda")}


class Draft:
    """A graph on its way to a problem: names, text, tensors."""

    def __init__(self, case, graph, job):
        from graph import refuse_randomness
        self.case, self.graph, self.job = case, graph, job
        refuse_randomness(graph.graph)
        self.input_names, taken = {}, set()
        tensor_names = [n for n, a in zip(case.names, case.arguments) if hasattr(a, "dim")]
        for node, name in zip(graph.inputs, tensor_names):
            self.input_names[node] = legal(name, taken)
        self.state_names, first_of = {}, {}
        for node, target in graph.states.items():
            tied = first_of.setdefault(id_of(graph.state_value(node)), node)
            self.state_names[node] = self.state_names[tied] if tied is not node else legal(target, taken)
        used = self._write(dict_from=None)[1]
        firsts = {first_of[id_of(graph.state_value(n))] for n in used if n in graph.states}
        self._choose_values([n for n in graph.states if n in firsts])
        self.outputs = graph.outputs()
        out = "out" if len(self.outputs) == 1 else "out0"
        self.output_names = [legal(out if i == 0 else f"out{i}", taken) for i in range(len(self.outputs))]
        body, _ = self._write(self.parameters if len(self.parameters) > MANY_PARAMETERS else None)
        self._finish_text(body)
        self._name_sizes(taken)

    def _choose_values(self, states):
        """Which of the module's tensors are drawn anew (parameters) and which keep their values (inputs)."""
        self.specs = {node: self._input_spec(node) for node in self.graph.inputs}
        for node in states:
            self.specs[node] = state_spec(self.case, self.graph, node)
        self.kept = [n for n in states if self.specs[n]["distribution"] == "stored"]
        self.parameters = [n for n in states if n not in self.kept]
        self.tensors = list(self.graph.inputs) + self.kept + self.parameters

    def _input_spec(self, node):
        from graph import Refusal
        from values import drawn, from_kind, from_values, stored
        argument = [a for a in self.case.arguments if hasattr(a, "dim")][self.graph.inputs.index(node)]
        if self.job.get("distribution") and argument.dtype.is_floating_point:
            return drawn(self.job["distribution"])
        kind = self.case.recorder.kind_of(argument)
        spec = from_kind(kind, argument.dtype) if kind else None
        if spec is None and not self.case.recorder.skipped:
            spec = from_values(argument) or stored(argument)
        if spec is None and argument.dtype.is_floating_point:
            spec = drawn("mixture")
        if spec is None:
            raise Refusal(f"input `{self.input_names[node]}`: nothing says how its values are drawn",
                          "make get_inputs draw it with torch.randint or torch.rand")
        return spec

    def _write(self, dict_from):
        from text import Writer
        given = dict(self.input_names)
        for node, name in self.state_names.items():
            given[node] = f'p["{name}"]' if dict_from is not None and node in dict_from else name
        names = [*self.input_names.values(), *self.state_names.values()]
        floats = [self.input_names[n] for n in self.graph.inputs if value_of(n).is_floating_point()]
        like = floats[0] if floats else next(iter(given.values()))
        writer = Writer(given, self.graph.states, like, names)
        return writer.body(self.graph.graph), writer.used

    def _finish_text(self, body):
        from text import function_text
        named = [self._name(n) for n in self.graph.inputs + self.kept]
        if len(self.parameters) > MANY_PARAMETERS:
            named.append("p: Dict[str, Tensor]")
        else:
            named += [self._name(n) for n in self.parameters]
        self.text = function_text(named, body)

    def _name(self, node):
        return self.input_names.get(node) or self.state_names[node]

    def _name_sizes(self, taken):
        from sizes import Sizes
        shapes = [self.graph.shape(n) for n in self.graph.inputs]
        names = taken | {f"{name}_offset" for name in taken} | {"params"}
        self.sizes = Sizes(shapes, self.graph.hints(), self.case.constants, names)

    def _bytes(self, nodes):
        from text import numel
        return sum(numel(value_of(n)) * value_of(n).element_size() for n in nodes)

    def measure(self):
        import sympy
        from costs import totals
        from text import expression
        self.operations, self.terms = totals(self.graph.graph, self.sizes.at_full)
        self.traffic = sympy.expand(self._bytes(self.tensors) + self._bytes(self.outputs))
        self.written = sympy.expand(self._bytes(self.outputs))
        names = self.sizes.names
        shapes = {n: [expression(d, names) for d in self.graph.shape(n)] for n in self.tensors + self.outputs}
        cost = {"flops": expression(self.operations, names), "bytes": expression(self.traffic, names),
                "min_bytes": expression(self.written, names)}
        return shapes, cost, {"reduction": expression(self.terms, names)}

    def small_sizes(self):
        if self.job.get("small"):
            return {**self.sizes.full, **self.job["small"]}
        first = self.graph.shape(self.graph.inputs[0])[:1]
        batch = next(iter(first[0].free_symbols), None) if first else None
        return self.sizes.small(self.traffic, self.operations, self.graph.lower_bounds(), batch)

    def concrete(self, node, sizes):
        return [self.sizes.at(d, sizes) for d in self.graph.shape(node)]


def legal(name, taken):
    from sizes import legal_name
    found = legal_name(name, taken)
    taken.add(found)
    return found


def value_of(node):
    return node.meta["val"]


def id_of(tensor):
    return (tensor.untyped_storage()._cdata, tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()))


def state_spec(case, graph, node):
    from graph import Refusal
    from values import LARGE, drawn, from_kind, from_values, stored
    tensor, name = graph.state_value(node), graph.states[node]
    kind = case.recorder.kind_of(tensor)
    if tensor.dtype.is_floating_point and not str(tensor.dtype).endswith("float32"):
        raise Refusal(f"its `{name}` has dtype {tensor.dtype}, which problems do not have", "convert it to float32")
    if name.endswith("running_var"):
        return drawn("positive")
    if name.endswith("running_mean"):
        return drawn("normal")
    random = kind is not None and kind[0] != "constant"
    if tensor.dtype.is_floating_point and (graph.is_parameter[node] or random):
        spec = from_kind(kind, tensor.dtype) if kind else None
        if spec is None and tensor.numel() < LARGE:
            spec = from_values(tensor)
        return spec or drawn("normal", 0.02)
    spec = stored(tensor) if str(tensor.dtype) in ("torch.float32", "torch.int64", "torch.bool") else None
    if spec is None:
        raise Refusal(f"its `{name}` ({tensor.dtype}, {tensor.numel()} elements) holds values that must stay as they are, "
                      "and they are too many for a problem file or of another type than float32, int64 and bool",
                      "compute it in forward, or make it an nn.Parameter if any values would do")
    return spec


def described_outputs(draft):
    """dtype of each output; index outputs are those of argmax and argmin of the first input."""
    from graph import Refusal
    from text import operator_name
    dtypes, check = [], {}
    for node in draft.outputs:
        if not hasattr(node, "meta") or not hasattr(node.meta.get("val"), "dtype"):
            raise Refusal("it returns what is no tensor", "return one tensor, or a tuple of tensors")
        dtype = str(value_of(node).dtype).removeprefix("torch.")
        if dtype == "int64" and operator_name(node) in ("argmax", "argmin") and len(draft.outputs) == 1 \
                and node.args[0] is draft.graph.inputs[0] and len(node.args) > 1 and node.args[1] is not None:
            check = {"extreme_dim": node.args[1] % value_of(node.args[0]).dim(),
                     "extreme_is_max": operator_name(node) == "argmax"}
        elif dtype != "float32":
            raise Refusal(f"its output has dtype {dtype}, which cannot be checked",
                          "return float32 (or the argmax or argmin of the first input along a dimension)")
        if 0 in value_of(node).shape:
            raise Refusal(f"its output is empty: shape {list(value_of(node).shape)}", "sizes start at 1")
        dtypes.append(dtype)
    return dtypes, check


def compiled(text):
    """As C++ compiles it: `torch` is the ATen operators and nothing else."""
    import types
    import torch
    namespace, table = types.ModuleType("torch"), torch.jit._builtins._get_builtin_table()
    for schema in torch._C._jit_get_all_schemas():
        family, _, name = schema.name.partition("::")
        if family == "aten" and not hasattr(namespace, name):
            stand_in = types.SimpleNamespace()
            setattr(namespace, name, stand_in)
            table[id(stand_in)] = schema.name
    unit = torch.jit.CompilationUnit()
    unit.define(text, rcb=lambda name: namespace if name == "torch" else None)
    return unit.forward


def same(ours, theirs, exactly):
    import torch
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return False
    if exactly or not ours.is_floating_point():
        return bool(torch.equal(ours.nan_to_num(), theirs.nan_to_num()))
    magnitude = float(theirs[theirs.isfinite()].abs().amax()) if bool(theirs.isfinite().any()) else 0.0
    difference = torch.where(ours == theirs, 0.0, ours - theirs).nan_to_num(0.0)
    return bool((difference.abs() <= TOLERANCE * magnitude).all())


def outputs_of(result):
    return [result] if hasattr(result, "dim") else list(result)


def compare(draft, function, inputs, states):
    """Runs the module twice and our text once on the same inputs."""
    import torch
    from case import refuse_raised
    from graph import Refusal
    module, arguments = draft.case.module, iter(inputs)
    given = [next(arguments) if hasattr(a, "dim") else a for a in draft.case.arguments]
    versions = [t._version for t in inputs]
    with torch.no_grad():
        try:
            first = [t.clone() for t in outputs_of(module(*given))]
            second = outputs_of(module(*given))
        except Exception as error:
            refuse_raised("forward", error)
        if [t._version for t in inputs] != versions:
            raise Refusal("forward writes into one of its inputs",
                          "write into a new tensor (no inplace=True on an input): candidates' inputs are read-only")
        if not all(same(a, b, exactly=True) for a, b in zip(second, first)):
            raise Refusal("its forward is not deterministic: two calls on the same inputs differ",
                          "draw nothing and keep nothing between calls in forward")
        named = {draft._name(n): value for n, value in zip(draft.parameters, states)}
        kept = [draft.graph.state_value(n) for n in draft.kept]
        rest = [named] if len(draft.parameters) > MANY_PARAMETERS else list(named.values())
        ours = outputs_of(function(*inputs, *kept, *rest))
    if len(ours) != len(first) or not all(same(a, b, exactly=False) for a, b in zip(ours, first)):
        raise Refusal("what was traced of its forward gives other answers on other inputs",
                      "its control flow or a constant depends on values: keep forward to tensor operations")


def compare_with_drawn(draft, function, sizes):
    import torch
    from values import draw
    torch.manual_seed(3)
    inputs = [draw(draft.specs[n], draft.concrete(n, sizes), value_of(n).dtype) for n in draft.graph.inputs]
    states = []
    with torch.no_grad():
        for node in draft.parameters:
            tensor = draft.graph.state_value(node)
            tensor.copy_(draw(draft.specs[node], list(tensor.shape), tensor.dtype))
            states.append(tensor)
    compare(draft, function, inputs, states)


def compare_with_fresh(draft, function):
    fresh = draft.case.fresh()
    if fresh is None:  # example inputs: nothing draws others
        compare_with_drawn(draft, function, draft.sizes.full)
    else:
        states = [draft.graph.state_value(n) for n in draft.parameters]
        compare(draft, function, [t for t in fresh if hasattr(t, "dim")], states)


def check_answers(draft, function, small):
    """At full size where that is affordable, else at small; returns the small sizes that hold, and notes."""
    from graph import Refusal
    at_full = draft.sizes.at_full
    affordable = at_full(draft.traffic) <= COMPARED_BYTES and at_full(draft.operations) <= COMPARED_OPERATIONS
    compared = affordable and not draft.case.recorder.skipped
    if compared:
        compare_with_fresh(draft, function)
    if small is not None and small != draft.sizes.full:
        try:
            compare_with_drawn(draft, function, small)
            compared = True
        except Refusal:
            if draft.job.get("small"):
                raise
            small = None
    return small, [] if compared else ["not compared with the module: too large for that here"]


def refuse_what_fails_anyway(case):
    """The file's own error says more than the tracer's."""
    import torch
    from case import refuse_raised
    if case.recorder.skipped:
        return
    try:
        with torch.no_grad():
            case.module(*case.arguments)
    except Exception as error:
        refuse_raised("forward", error)


def draft_of(case, job):
    """The first graph, from the one with most free sizes on, whose shapes and operators can be written down."""
    from case import check_argument
    from graph import Refusal, export
    from text import ChangesState, Unwritable
    reason = None
    for graph in export(case.module, case.arguments, case.folder):
        try:
            draft = Draft(case, graph, job)
            return draft, draft.measure()
        except Unwritable as unwritable:
            reason = unwritable
        except ChangesState as change:
            raise Refusal(str(change), "write into a new tensor; candidates' inputs are read-only, weights are drawn "
                                       "anew for each call") from change
    raise Refusal(f"its graph holds {reason}, which TorchScript text cannot say",
                  "use operators of torch itself (ATen) in forward")


def describe(job, say):
    import torch
    from case import DTYPES, case_of_file, case_of_function
    from costs import families
    from graph import Refusal, first_line
    say({"phase": "load"})
    case = case_of_file(job["file"]) if job.get("file") else case_of_function(job["function"], job["examples"])
    case.module.train(not job.get("eval"))
    for parameter in case.module.parameters():
        parameter.requires_grad_(False)
    say({"phase": "trace"})
    try:
        draft, (shapes, cost, check) = draft_of(case, job)
    except Refusal:
        refuse_what_fails_anyway(case)
        raise
    dtypes, extreme = described_outputs(draft)
    try:
        function = compiled(draft.text)
    except Exception as error:
        raise Refusal("the text made of its graph is no TorchScript: " + first_line(error)) from error
    small = draft.small_sizes()
    say({"phase": "compare"})
    small, notes = check_answers(draft, function, small)
    sizes = {"full": draft.sizes.full}
    if small is not None:
        sizes["small"] = small
    flags = {}
    if any(value_of(n).numel() >= LARGE_INDEX for n in draft.tensors + draft.outputs):
        flags["needs-int64-index"] = "A tensor has 2^31 elements or more."
    inputs = [{"name": draft._name(n), "shape": shapes[n], "dtype": DTYPES[value_of(n).dtype],
               "role": "param" if n in draft.parameters else "input", **draft.specs[n]} for n in draft.tensors]
    outputs = [{"name": name, "shape": shapes[n], "dtype": dtype}
               for name, n, dtype in zip(draft.output_names, draft.outputs, dtypes)]
    return {"reference": draft.text, "source": case.source, "families": families(draft.graph.graph), "sizes": sizes,
            "inputs": inputs, "outputs": outputs, "cost": cost, "check": {**check, **extreme}, "flags": flags,
            "notes": notes, "torch": torch.__version__,
            "bytes": {name: draft.sizes.at(draft.traffic, at) for name, at in sizes.items()}}


def answer(job, say):
    from graph import Refusal, first_line
    try:
        say(describe(job, say))
    except Refusal as refusal:
        say({"error": str(refusal), "next": refusal.next_step})
    except MemoryError:
        say({"error": "it does not fit into this machine's memory", "next": "import it on a larger machine"})
    except Exception as error:
        say({"error": first_line(error), "next": "does it run in Python by itself?"})


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a file and torch print is no answer

    def say(message):
        print(json.dumps(message), file=answers, flush=True)

    if "--version" in sys.argv:
        say(describe_version())
        return
    sys.dont_write_bytecode = True  # beside an installed script or a person's file
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    say({"phase": "import torch"})
    try:
        import torch
    except Exception as error:
        say({"error": f"Python cannot import torch: {error}", "machine": True})
        return
    # What every job needs is imported once. Nothing is computed here: a child could not use the threads of that.
    for name in ("torch._dynamo", "torch._export.non_strict_utils", "torch.export", "torch.fx.experimental.symbolic_shapes"):
        importlib.import_module(name)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            answer(json.loads(line), say)
            answers.flush()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            say({"error": f"Python ended by signal {os.WTERMSIG(status)} while at it",
                 "next": "is there enough memory? does it run in Python by itself?"})
        elif os.WEXITSTATUS(status) != 0:
            say({"error": "the file ended Python", "next": "take sys.exit and the like out of it"})


if __name__ == "__main__":
    main()
