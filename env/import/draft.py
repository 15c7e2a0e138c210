"""A problem made from a graph: its tensors, their names, its text and sizes."""

import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves

from .costs import has_attention, totals
from .graph import refuse_randomness, refuse_values
from .indices import extents
from .refusals import Refusal
from .sizes import Sizes, expression, legal_name, numel, size
from .text import Writer, function_text, own_outputs, whole_input
from .values import drawn, input_spec, state_spec

MANY_PARAMETERS = 16  # above it they are one Dict (env/problem/problem.h)
ATTENTION_SPREAD = 8  # error_spread of env/verdict/verify.h


def value_of(node):
    return node.meta["val"]


def id_of(tensor):
    return (tensor.untyped_storage()._cdata, tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()))


NEW = "return a new tensor (.clone()), or leave the view to the caller"


def address(tensor):
    """Of a tensor's memory; of a traced one, which has no memory, that of its description."""
    storage = tensor.untyped_storage()
    return ("traced", storage._cdata) if isinstance(tensor, FakeTensor) else ("memory", storage.data_ptr())


def owners_of(draft, inputs, tensor_of_state):
    """The memory that forward is given: by address, the input's node (None for a tensor of the module), and words."""
    owners = {}
    for node, tensor in zip(draft.graph.inputs, inputs):
        owners.setdefault(address(tensor), (node, f"its input `{draft.name(node)}`"))
    for node, path in draft.graph.states.items():
        kind = "parameter" if draft.graph.is_parameter[node] else "buffer"
        owners.setdefault(address(tensor_of_state(node)), (None, f"its own {kind} `{path.removeprefix('function.')}`"))
    return owners


def overlap(a, b):
    """Whether two tensors in one memory have an element in common. Of traced ones only what is certain."""
    if isinstance(a, FakeTensor):
        return size(a.storage_offset()) == size(b.storage_offset())
    if a.numel() == 0 or b.numel() == 0:
        return False
    if a.dtype != b.dtype:
        return True
    used = torch.zeros(a.untyped_storage().nbytes() // a.element_size(), dtype=torch.bool)
    torch.as_strided(used, a.shape, a.stride(), a.storage_offset()).fill_(True)
    return bool(torch.as_strided(used, b.shape, b.stride(), b.storage_offset()).any())


def refuse_aliases(draft, owners, answers):
    """A kernel writes new tensors: an output in the memory of an input, of the module's own tensors or of another output
    would behave otherwise. An input that forward changes may be returned whole, and one tensor twice."""
    seen = []
    for node, answer in zip(draft.returned, answers):
        if node is None or not isinstance(answer, torch.Tensor):
            continue
        name = f"its output `{draft.output_names[draft.outputs.index(node)]}`"
        owner, words = owners.get(address(answer), (None, None))
        if words is not None and (owner is None or owner is not node):
            raise Refusal(f"{name} is a view of {words}: the two share their memory", NEW)
        for other, former, tensor in seen:
            if other is not node and address(tensor) == address(answer) and overlap(tensor, answer):
                raise Refusal(f"{former} and {name} share their memory", NEW)
        seen.append((node, name, answer))


class Draft:
    """`tensors`: those of the problem, in order: inputs, `kept` (tensors of the module with fixed values), `parameters`
    (its other tensors, which are drawn). `specs`: how each is drawn."""

    def __init__(self, case, graph, job):
        self.case, self.graph, self.job = case, graph, job
        refuse_randomness(graph.graph, case.folder)
        refuse_values(graph.graph, case.folder)
        self.taken = set()
        self.input_names = {node: self._legal(name) for node, name in zip(graph.inputs, case.names)}
        self.changed = []  # inputs that forward writes into: input-outputs, in the order of the inputs
        self._choose_tensors(self._name_states())
        returned = graph.outputs(bool(self.changed))
        self.returned = [whole_input(one) if whole_input(one) in self.changed else one for one in returned]
        own = [one for one in own_outputs(returned, self.changed) if one is not None]
        self.outputs = own + self.changed  # of the problem
        out = "out" if len(own) == 1 else "out0"
        self.output_names = [self._legal(out if i == 0 else f"out{i}") for i in range(len(own))]
        self.output_names += [self.name(node) for node in self.changed]
        self._refuse_traced_aliases()
        body, _, _ = self._write(self.parameters if self.has_many() else [])
        self._finish_text(body)
        self._name_sizes()

    def name(self, node):
        return self.input_names.get(node) or self.state_names[node]

    def has_many(self):
        return len(self.parameters) > MANY_PARAMETERS

    def concrete(self, node, sizes):
        return [self.sizes.at(d, sizes) for d in self.graph.shape(node)]

    def answers_of_module(self, inputs, parameters):
        """The outputs of the problem as the module gives them, as a list. It writes into copies of inputs."""
        given, drawn_anew = self._given(inputs), dict(zip(self.parameters, parameters))
        answers = tree_leaves(self.graph.call(self.case.module, given, drawn_anew))
        refuse_aliases(self, owners_of(self, given, lambda node: drawn_anew.get(node, self.graph.state_value(node))), answers)
        own = [answer for node, answer in zip(self.returned, answers) if node is not None and node not in self.changed]
        return own + self._changed_of(given)

    def _refuse_traced_aliases(self):
        """The same of the trace, for modules that are too large to be called here."""
        owners = owners_of(self, [value_of(node) for node in self.graph.inputs], value_of)
        refuse_aliases(self, owners, [getattr(node, "meta", {}).get("val") for node in self.returned])

    def _given(self, inputs):
        return [t.clone() if n in self.changed else t for n, t in zip(self.graph.inputs, inputs)]

    def _changed_of(self, given):
        return [given[self.graph.inputs.index(node)] for node in self.changed]

    def changed_places(self):
        """The numbers of the inputs that forward changes."""
        return [self.graph.inputs.index(node) for node in self.changed]

    def number_of(self, leaf):
        """Which of the problem's outputs a tensor is that forward returns; None for None."""
        return None if self.returned[leaf] is None else self.outputs.index(self.returned[leaf])

    def answers_of_text(self, function, inputs, parameters, device="cpu"):
        named = {self.name(n): value for n, value in zip(self.parameters, parameters)}
        kept = [self.graph.state_value(n).to(device) for n in self.kept]
        given = self._given(inputs)
        answers = function(*given, *kept, *([named] if self.has_many() else named.values()))
        return ([] if answers is None else tree_leaves(answers)) + self._changed_of(given)

    def measure(self):
        """Shapes of all tensors, costs and the length of sums, in the syntax of a problem file."""
        self.operations, self.terms = totals(self.graph.graph, self.sizes.at_full)
        own = self.outputs[:len(self.outputs) - len(self.changed)]  # of an input-output a part may be touched
        self.traffic = sympy.expand(self._bytes(self.tensors) + self._bytes(own))
        names = self.sizes.names
        self.shapes = {n: [expression(d, names) for d in self.graph.shape(n)] for n in self.tensors + self.outputs}
        self.cost = {"flops": expression(self.operations, names), "bytes": expression(self.traffic, names),
                     "min_bytes": expression(sympy.expand(self._bytes(own)), names)}
        self.check = {"reduction": expression(self.terms, names)}
        if has_attention(self.graph.graph):
            self.check["error_spread"] = ATTENTION_SPREAD

    def small_sizes(self, legal):
        """Size sets for a small CPU, in the order of preference (sizes.py)."""
        if self.job.get("small"):
            return [{**self.sizes.full, **self.job["small"]}]
        shapes = [self.graph.shape(n) for n in self.graph.inputs]
        batch = next(iter(shapes[0][0].free_symbols), None) if shapes[0] else None
        of_inputs = set().union(*(d.free_symbols for shape in shapes for d in shape))
        return self.sizes.smaller(self.traffic, self.operations, self.graph.lower_bounds(),
                                  [s for s in self.sizes.hints if s in of_inputs], batch, legal)

    def _legal(self, wanted):
        found = legal_name(wanted, self.taken)
        self.taken.add(found)
        return found

    def _name_states(self):
        """Names the module's tensors, tied tensors once; returns those that the text reads, each once."""
        first_of, self.state_names = {}, {}
        for node, target in self.graph.states.items():
            tied = first_of.setdefault(id_of(self.graph.state_value(node)), node)
            self.state_names[node] = self.state_names[tied] if tied is not node else self._legal(target.removeprefix("function."))
        _, used, written = self._write(in_dict=[])
        self.changed = [node for node in self.graph.inputs if node in written]
        firsts = {first_of[id_of(self.graph.state_value(n))] for n in used if n in self.graph.states}
        return [n for n in self.graph.states if n in firsts]

    def _choose_tensors(self, states):
        self.specs = {node: input_spec(self.case, tensor, self.input_names[node], self.job.get("distribution"),
                                       self._index_range(node))
                      for node, tensor in zip(self.graph.inputs, self.case.tensors)}
        for node in self.changed:  # a cache that begins with zeros holds other values later
            if self.specs[node]["distribution"] == "stored" and value_of(node).is_floating_point():
                self.specs[node] = drawn("normal")
        for node in states:
            self.specs[node] = state_spec(self.case, self.graph.state_value(node), self.graph.states[node],
                                          self.graph.is_parameter[node])
        self.kept = [n for n in states if self.specs[n]["distribution"] == "stored"]
        self.parameters = [n for n in states if n not in self.kept]
        self.tensors = list(self.graph.inputs) + self.kept + self.parameters

    def _index_range(self, node):
        """At the sizes of the file; None for a tensor that is no index."""
        hints = self.graph.hints()
        found = [int(size(extent).subs(hints)) for extent in extents(node)] if value_of(node).dtype == torch.int64 else []
        return min(found, default=None)

    def _write(self, in_dict):
        given = dict(self.input_names)
        for node, name in self.state_names.items():
            given[node] = f'p["{name}"]' if node in in_dict else name
        names = [*self.input_names.values(), *self.state_names.values()]
        floats = [n for n in given if value_of(n).is_floating_point()]
        like = floats[0] if floats else next(iter(given))
        writer = Writer(given, self.graph.states, like, names, self.changed)
        return writer.body(self.graph.graph), writer.used, writer.written

    def _finish_text(self, body):
        named = [self.name(n) for n in self.graph.inputs + self.kept]
        named += ["p: Dict[str, Tensor]"] if self.has_many() else [self.name(n) for n in self.parameters]
        self.text = function_text(named, body)

    def _name_sizes(self):
        shapes = [self.graph.shape(n) for n in self.tensors]
        names = self.taken | {f"{name}_offset" for name in self.taken} | {"params"}
        self.sizes = Sizes(shapes, self.graph.hints(), self.case.constants, names)

    def _bytes(self, nodes):
        return sum(numel(value_of(n)) * value_of(n).element_size() for n in nodes)
