"""A module as a graph: exported by torch, with what its placeholders stand for and which sizes are free."""

import inspect
import os
import traceback

import torch
from torch.export import Dim
from torch.export.graph_signature import InputKind

from costs import tensor
from text import Unwritable, operator_name, size

DEPENDS_ON_VALUES = ("data-dependent", "data dependent", "DataDependent", "Could not guard", "UserError")


class Refusal(Exception):
    """This file cannot be imported: what is wrong with it, and what to do about it."""

    def __init__(self, what, next_step=""):
        super().__init__(what)
        self.next_step = next_step


def place_in(error, folder):
    """Where in the person's own files it came up: " (file.py, line 7: if x.sum() > 0:)"."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(folder)]
    return f" ({os.path.basename(own[-1].filename)}, line {own[-1].lineno}: {own[-1].line})" if own else ""


def first_line(error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:400]


def depends_on_values(error):
    names = {cls.__name__ for cls in type(error).__mro__}
    if names & {"GuardOnDataDependentSymNode", "DataDependentOutputException", "UserError"}:
        return True
    return any(word in str(error)[:2000] for word in DEPENDS_ON_VALUES)


def attempts(arguments):
    """Which dimensions may be free: all, the first of each input, none."""
    def shapes(free):
        return tuple({i: Dim.AUTO for i in range(a.dim()) if free(i)} if isinstance(a, torch.Tensor) else None
                     for a in arguments)
    return [shapes(lambda i: True), shapes(lambda i: i == 0), shapes(lambda i: False)]


class Graph:
    def __init__(self, program):
        self.program = program
        self.graph = program.graph
        by_name = {node.name: node for node in self.graph.nodes if node.op == "placeholder"}
        self.inputs, self.states = [], {}  # nodes; node -> its name in the module
        self.is_parameter = {}
        for spec in program.graph_signature.input_specs:
            node = by_name[spec.arg.name]
            if spec.kind == InputKind.USER_INPUT:
                if tensor(node) is not None:
                    self.inputs.append(node)
            elif spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
                self.states[node] = spec.target
                self.is_parameter[node] = spec.kind == InputKind.PARAMETER
            else:
                raise Unwritable(f"an input of the kind {spec.kind.name}")

    def state_value(self, node):
        target = self.states[node]
        for holder in (self.program.state_dict, self.program.constants):
            if target in holder:
                return holder[target]
        raise Unwritable(f"the state {target}")

    def outputs(self):
        node = next(node for node in self.graph.nodes if node.op == "output")
        return list(node.args[0])

    def shape(self, node):
        return [size(dimension) for dimension in tensor(node).shape]

    def hints(self):
        found = {}
        for node in self.inputs:
            for dimension in tensor(node).shape:
                if isinstance(dimension, torch.SymInt):
                    environment = dimension.node.shape_env
                    for symbol in dimension.node.expr.free_symbols:
                        backed = getattr(environment, "backed_var_to_val", None) or environment.var_to_val
                        found[symbol] = int(backed[symbol])
        return found

    def lower_bounds(self):
        bounds = {}
        for symbol, interval in self.program.range_constraints.items():
            if interval.lower.is_Integer:
                bounds[symbol] = int(interval.lower)
        return bounds


def refuse_randomness(graph):
    for node in graph.nodes:
        if not isinstance(node.target, torch._ops.OpOverload):
            continue
        if torch.Tag.nondeterministic_seeded not in node.target.tags:
            continue
        name = operator_name(node)
        values = {a.name: a.default_value for a in node.target._schema.arguments if a.has_default_value()}
        values.update(zip((a.name for a in node.target._schema.arguments), node.args))
        values.update(node.kwargs)
        chance = values.get("p", values.get("dropout_p", values.get("dropout")))
        if chance == 0 or values.get("train", values.get("training")) is False:
            continue
        said = f" with p = {chance} in training mode" if isinstance(chance, float) else ""
        raise Refusal(f"its forward draws random numbers: torch.{name}{said}",
                      "import it with --eval if it is dropout; else make what is drawn an input, or set p to 0")


def nested(module, shapes):
    """As torch.export wants them: those of *arguments are one tuple."""
    kinds = [parameter.kind for parameter in inspect.signature(module.forward).parameters.values()]
    return (tuple(shapes),) if shapes is not None and kinds == [inspect.Parameter.VAR_POSITIONAL] else shapes


def export(module, arguments, folder):
    """Graphs of the module, the one with most free sizes first; made when asked for. `folder` has the person's files."""
    last = None
    for shapes in attempts(arguments):
        try:
            with torch.no_grad():
                program = torch.export.export(module, tuple(arguments), dynamic_shapes=nested(module, shapes), strict=False)
            yield Graph(program)
        except Exception as error:
            if depends_on_values(error):
                raise Refusal(
                    "its control flow depends on the values of tensors, which tracing would freeze" +
                    (place_in(error, folder) or ": " + first_line(error)),
                    "say it with torch.where, torch.clamp or masks, or import the branches one by one") from error
            last = error
    raise Refusal(f"torch cannot trace it{place_in(last, folder)}: " + first_line(last),
                  "keep to tensor operations in forward; torch.export says more in Python")
