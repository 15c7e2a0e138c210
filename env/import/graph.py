"""A module as a graph: exported by torch, with the meaning of its placeholders and its free sizes."""

import contextlib
import inspect

import torch
from torch._C import DispatchKey
from torch.export import Dim
from torch.export.graph_signature import InputKind
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from .costs import tensor
from .refusals import Refusal, Unwritable, first_line, place_in, place_of
from .sizes import size
from .text import operator_name

DEPENDS_ON_VALUES = ("data-dependent", "data dependent", "DataDependent", "Could not guard", "UserError")
HAS_SYMBOLS = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)
FREE_EXTENT = 64  # of a weight: a shorter one is the width of a kernel or a number of heads


def depends_on_values(error):
    names = {cls.__name__ for cls in type(error).__mro__}
    if names & {"GuardOnDataDependentSymNode", "DataDependentOutputException", "UserError"}:
        return True
    return any(word in str(error)[:2000] for word in DEPENDS_ON_VALUES)


def attempts(arguments):
    """The dimensions that may be free: all, the first of each input, none."""
    def shapes(free):
        return tuple({i: Dim.AUTO for i in range(a.dim()) if free(i)} if isinstance(a, torch.Tensor) else None
                     for a in arguments)
    return [shapes(lambda i: True), shapes(lambda i: i == 0), shapes(lambda i: False)]


class Graph:
    """`free`: the names of the module's tensors that the graph takes as arguments, after the module's own arguments."""

    def __init__(self, program, tensor_arguments, free=(), values=()):
        self.program = program
        self.graph = program.graph
        self.free = dict(zip(free, values))
        by_name = {node.name: node for node in self.graph.nodes if node.op == "placeholder"}
        self.inputs, self.states = [], {}  # nodes; node -> its name in the module
        self.is_parameter = {}
        for spec in program.graph_signature.input_specs:
            node = by_name[spec.arg.name]
            if spec.kind == InputKind.USER_INPUT:
                if tensor(node) is not None:
                    self.inputs.append(node)
            elif spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
                name = spec.target.removeprefix("module.") if self.free else spec.target
                if name not in self.free:
                    self.states[node], self.is_parameter[node] = name, spec.kind == InputKind.PARAMETER
            else:
                raise Unwritable(f"an input of the kind {spec.kind.name}")
        for node, name in zip(self.inputs[tensor_arguments:], free):
            self.states[node], self.is_parameter[node] = name, True
        del self.inputs[tensor_arguments:]

    def call(self, module, arguments, parameters):
        """The result of the module with `parameters` (node -> values) in place of its own."""
        named = {self.states[node]: values for node, values in parameters.items()}
        return torch.func.functional_call(module, named, tuple(arguments))

    def state_value(self, node):
        target = self.states[node]
        if target in self.free:
            return self.free[target]
        for holder in (self.program.state_dict, self.program.constants):
            for name in (target, "module." + target):
                if name in holder:
                    return holder[name]
        raise Unwritable(f"the state {target}")

    def outputs(self, changes_inputs=False):
        """A None only of a forward that does its work by writing into its inputs."""
        node = next(node for node in self.graph.nodes if node.op == "output")
        if not changes_inputs and (any(value is None for value in node.args[0]) or not node.args[0]):
            raise Refusal("its forward returns None", "return one tensor, or a tuple of tensors")
        return list(node.args[0])

    def shape(self, node):
        return [size(dimension) for dimension in tensor(node).shape]

    def hints(self):
        found = {}
        for node in [*self.inputs, *(n for n in self.states if self.states[n] in self.free)]:
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


def refuse_randomness(graph, folder):
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
        raise Refusal(f"its forward draws random numbers: torch.{name}{said}{place_of(node, folder)}",
                      "import it with --eval, which leaves dropout out, or set p to 0" if said else
                      "make what is drawn an input of forward, or draw it once in __init__")


def refuse_values(graph, folder):
    """Numbers and shapes that depend on what a tensor holds: x[mask], nonzero, item."""
    for node in graph.nodes:
        values = node.meta.get("val")
        values = [v for v in (values if isinstance(values, (list, tuple)) else [values]) if isinstance(v, HAS_SYMBOLS)]
        if node.op != "call_function" or not any(free_unbacked_symbols(v) for v in values):
            continue
        name = operator_name(node)
        what = "a number is read from a tensor" if name == "item" else "the shape of its result depends on the values of a tensor"
        raise Refusal(f"{what}: torch.{'index with a mask' if name == 'index' else name.lstrip('_')}{place_of(node, folder)}",
                      "keep it a tensor of a fixed shape: torch.where, a mask that is multiplied, topk with a fixed count")


def nested(module, shapes):
    """In the form of torch.export: the shapes of *arguments are one tuple."""
    kinds = [parameter.kind for parameter in inspect.signature(module.forward).parameters.values()]
    return (tuple(shapes),) if shapes is not None and kinds == [inspect.Parameter.VAR_POSITIONAL] else shapes


@contextlib.contextmanager
def unchanged(module):
    """Restores the attributes of the module afterwards: a forward may store tensors of the trace."""
    kept = [(part, dict(vars(part)), dict(part._buffers)) for part in module.modules()]
    try:
        yield
    finally:
        for part, attributes, buffers in kept:
            vars(part).clear()
            vars(part).update(attributes)
            part._buffers.clear()
            part._buffers.update(buffers)


def program_of(module, arguments, shapes, folder):
    try:
        with torch.no_grad(), unchanged(module):
            return torch.export.export(module, tuple(arguments), dynamic_shapes=shapes, strict=False)
    except Exception as error:
        if depends_on_values(error):
            raise Refusal("its control flow depends on the values of tensors, which tracing would freeze" +
                          (place_in(error, folder) or ": " + first_line(error)),
                          "say it with torch.where, torch.clamp or masks, or import the branches one by one") from error
        raise


def export(module, arguments, folder):
    """Graphs of the module, lazily, the one with most free sizes first. `folder` has the user's files."""
    last, count = None, sum(isinstance(a, torch.Tensor) for a in arguments)
    for shapes in attempts(arguments):
        try:
            yield Graph(program_of(module, arguments, nested(module, shapes), folder), count)
        except Refusal:
            raise
        except Exception as error:
            last = error
    raise Refusal(f"torch cannot trace it{place_in(last, folder)}: " + first_line(last),
                  "keep to tensor operations in forward; torch.export says more in Python")


class WithWeights(torch.nn.Module):
    """A module that takes some of its tensors as arguments, so that their sizes can vary too."""

    def __init__(self, module, names):
        super().__init__()
        self.module, self.names = module, names

    def forward(self, arguments, weights):
        return torch.func.functional_call(self.module, dict(zip(self.names, weights)), tuple(arguments))


def export_with_weights(module, arguments, folder):
    """One graph in which the sizes of weights vary as far as torch can trace them."""
    free = {name: value.detach() for name, value in module.named_parameters()}
    free.update((name, value) for name, value in module.named_buffers()
                if name.endswith(("running_mean", "running_var")))
    shapes = (attempts(arguments)[0], [{i: Dim.AUTO for i, extent in enumerate(value.shape) if extent >= FREE_EXTENT}
                                       for value in free.values()])
    try:
        program = program_of(WithWeights(module, list(free)), (tuple(arguments), list(free.values())), shapes, folder)
    except Refusal:
        raise
    except Exception as error:
        raise Refusal("torch cannot trace it with weights of any size: " + first_line(error)) from error
    yield Graph(program, sum(isinstance(a, torch.Tensor) for a in arguments), list(free), list(free.values()))


# --- Shapes of torch's recurrent layers ---
# torch's own shape functions run every step of the sequence, which takes minutes and fixes the length of the sequence.


def check_recurrent_shapes(x, states, weights, batch_first):
    torch._check(x.shape[-1] == weights[0].shape[1])
    torch._check(weights[1].shape[-1] == states[0].shape[-1])
    for state in states:
        torch._check(state.dim() == x.dim())
        if x.dim() == 3:
            torch._check(state.shape[1] == x.shape[0 if batch_first else 1])


def recurrent_result(x, states, weights, bidirectional, batch_first):
    check_recurrent_shapes(x, states, weights, batch_first)
    width = states[0].shape[-1] * (2 if bidirectional else 1)
    return (x.new_empty([*x.shape[:-1], width]), *(state.new_empty(state.shape) for state in states))


def lstm(x, states, weights, has_biases, layers, dropout, train, bidirectional, batch_first):
    return recurrent_result(x, states, weights, bidirectional, batch_first)


def one_state(x, state, weights, has_biases, layers, dropout, train, bidirectional, batch_first):
    return recurrent_result(x, [state], weights, bidirectional, batch_first)


def use_recurrent_shapes():
    """Registers them for torch's Python dispatcher; tensors with values are computed as before."""
    for name, shapes in (("lstm", lstm), ("gru", one_state), ("rnn_tanh", one_state), ("rnn_relu", one_state)):
        operator = getattr(torch.ops.aten, name).input
        for key in (DispatchKey.CompositeImplicitAutograd, DispatchKey.Autograd):
            operator.py_kernels[key] = shapes
        operator._dispatch_cache.clear()
