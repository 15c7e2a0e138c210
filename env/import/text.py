"""An exported graph as TorchScript text with explicit parameters."""

import json
import keyword
import math
import operator

import torch

from .refusals import ChangesState, Unwritable

DTYPE_CODES = {torch.uint8: 0, torch.int8: 1, torch.int16: 2, torch.int32: 3, torch.int64: 4, torch.float16: 5,
               torch.float64: 7, torch.bool: 11, torch.bfloat16: 15}
FORMAT_CODES = {torch.contiguous_format: 0, torch.preserve_format: 1, torch.channels_last: 2,
                torch.channels_last_3d: 3}
INFIX = {operator.add: "+", operator.sub: "-", operator.mul: "*", operator.floordiv: "//", operator.mod: "%",
         operator.truediv: "/", operator.pow: "**"}
WITHOUT_VALUE = {"_assert_scalar", "_assert_tensor_metadata", "sym_constrain_range", "sym_constrain_range_for_size",
                 "_assert_async"}
RESERVED = set(keyword.kwlist) | {"torch", "math", "real", "real16", "no_ints", "forward", "p", "int", "float", "bool", "str",
                                  "list", "len", "range", "min", "max", "sum", "abs", "print", "List", "Dict",
                                  "Tensor", "Optional"}
HELPERS = {
    # The truth is computed in float64: constants and conversions of the module must not round it.
    "real(": "def real(x: Tensor) -> int:\n    return 7 if x.dtype == 7 else 6\n\n",
    "real16(": "def real16(x: Tensor, code: int) -> int:\n    return 7 if x.dtype == 7 else code\n\n",
    "no_ints(": "def no_ints() -> List[int]:\n    none: List[int] = []\n    return none\n\n",
}


def operator_name(node):
    return node.target._schema.name.removeprefix("aten::") if isinstance(node.target, torch._ops.OpOverload) else ""


def written_arguments(node):
    """The nodes that this call writes to."""
    schema = node.target._schema
    for i, argument in enumerate(schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = node.args[i] if i < len(node.args) else node.kwargs.get(argument.name)
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(one, torch.fx.Node):
                yield one


def whole_input(node):
    """The input that a node is: itself, or after calls in place; else the node."""
    while isinstance(node, torch.fx.Node) and operator_name(node).endswith("_") and node.args:
        node = node.args[0]
    return node


def own_outputs(outputs, changed):
    """The outputs of forward that are new tensors: not the inputs that it changes, which are input-outputs."""
    return [one for one in outputs if whole_input(one) not in changed]


class Writer:
    """Writes the body of `forward`. `given` maps placeholders to their expressions, `states` the placeholders of the
    module's own tensors to their names; `like` is a floating-point one of them."""

    def __init__(self, given, states, like, taken, changed=()):
        """`changed`: the inputs that forward writes into. So does the text, and does not return them."""
        self.names, self.states, self.like_node = dict(given), states, like
        self.changed, self.written = changed, []  # inputs; those that were found to be written into
        self.taken = set(taken) | RESERVED
        self.roots = {node: node for node in given}
        self.used, self.replaced = set(), set()  # placeholders that the text reads; that it overwrites
        self.lines = []

    @property
    def like(self):
        self.used.add(self.like_node)
        return self.names[self.like_node]

    @property
    def made_float(self):
        """The type of values made as float32. In a problem of float32 that is computed in 16 bits they have 16 bits too."""
        return f"{self.like}.dtype" if self.like_node.meta["val"].dtype == torch.float32 else f"real({self.like})"

    def body(self, graph):
        for node in graph.nodes:
            if node.op == "call_function":
                self._call(node)
            elif node.op == "output":
                self._return(own_outputs(node.args[0], self.changed))
            elif node.op == "get_attr":
                raise Unwritable(f"a part of its own ({node.target})")
        return "".join(f"    {line}\n" for line in self.lines)

    def _fresh(self, wanted):
        name, count = wanted.lower().strip("_") or "t", 1
        while name in self.taken:
            count += 1
            name = f"{wanted.lower().strip('_')}_{count}"
        self.taken.add(name)
        return name

    def _call(self, node):
        if node.target is operator.getitem:
            self.names[node] = f"{self.value(node.args[0])}[{node.args[1]}]"
            self.roots[node] = self.roots.get(node.args[0], node)
            return
        if node.target in INFIX:
            left, right = (self.value(a) for a in node.args)
            self.names[node] = f"({left} {INFIX[node.target]} {right})"
            return
        if not isinstance(node.target, torch._ops.OpOverload):
            raise Unwritable(str(getattr(node.target, "__name__", node.target)))
        if node.target.namespace != "aten":
            raise Unwritable(str(node.target))
        name = operator_name(node)
        if name in WITHOUT_VALUE or self._passes_through(node, name) or self._replaces_state(node, name):
            return
        if name == "sym_size":
            self.names[node] = f"{self.value(node.args[0])}.size({node.args[1]})"
            return
        arguments = self._statistics_left_out(node, name)
        if not self._check_writes(node):
            return
        texts = [self.value(a, self._type(node, i)) for i, a in enumerate(arguments)]
        for key, value in node.kwargs.items():
            if key in ("layout", "pin_memory") or value is None:
                continue
            text = self.value(value)
            made_here = key == "dtype" and value == torch.float32 and self._makes_values(node)
            texts.append(f"{key}={self.made_float}" if made_here else f"{key}={text}")
        if self._lacks_dtype(node):
            texts.append(f"dtype={self.made_float}")
        self.names[node] = self._fresh(node.name)
        self.lines.append(f"{self.names[node]} = torch.{name}({', '.join(texts)})")
        self._follow_alias(node)

    def _lacks_dtype(self, node):
        """A call that makes float32 values by default must make float64 values for the truth."""
        result = node.meta.get("val")
        return (isinstance(result, torch.Tensor) and result.dtype == torch.float32 and self._makes_values(node)
                and node.kwargs.get("dtype") is None
                and any(a.name == "dtype" for a in node.target._schema.arguments))

    @staticmethod
    def _makes_values(node):
        return not any(isinstance(a, torch.fx.Node) and isinstance(a.meta.get("val"), torch.Tensor) for a in node.args)

    @staticmethod
    def _type(node, i):
        arguments = node.target._schema.arguments
        return str(arguments[i].type) if i < len(arguments) else ""

    def _passes_through(self, node, name):
        """Operators without effect get no line."""
        no_dropout = name in ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout") and (
            node.args[1] == 0 or not node.args[2])
        if not no_dropout and name not in ("detach", "alias", "lift_fresh", "lift_fresh_copy"):
            return False
        if name == "lift_fresh_copy":
            return False
        self.names[node] = self.value(node.args[0])
        self.roots[node] = self.roots.get(node.args[0], node)
        return True

    def _replaces_state(self, node, name):
        """A state that is overwritten completely before it is read is replaced by the written value."""
        state = node.args[0] if name == "copy_" else None
        if state not in self.states or state in self.used or \
                state.meta["val"].dtype != node.args[1].meta["val"].dtype or \
                not all(isinstance(extent, int) for extent in state.meta["val"].shape):
            return False
        shape = self.value(list(state.meta["val"].shape))
        copy = self._fresh(self.states[state])
        self.lines.append(f"{copy} = torch.clone(torch.expand({self.value(node.args[1])}, {shape}))")
        self.names[node] = self.names[state] = copy
        self.roots[node] = self.roots[state] = node
        self.replaced.add(state)
        return True

    def _statistics_left_out(self, node, name):
        """Running statistics are left out if the batch's own statistics are used."""
        arguments = list(node.args)
        own_statistics = name in ("batch_norm", "instance_norm") and arguments[5]
        if own_statistics:
            arguments[3] = arguments[4] = None
        return arguments

    def _check_writes(self, node):
        """False for a call whose only effect is on a counter that is never read."""
        for written in written_arguments(node):
            root = self.roots.get(written, written)
            if root not in self.states and root.op != "placeholder":
                continue
            state = self.states.get(root)
            if state is not None and state.endswith("num_batches_tracked") and not node.users:
                return False
            if state is not None:
                raise ChangesState(f"forward writes into its own state `{state}` (torch.{operator_name(node)})")
            if root not in self.written:
                self.written.append(root)
        return True

    def _follow_alias(self, node):
        schema = node.target._schema
        aliases = any(r.alias_info is not None for r in schema.returns)
        first = next((a for a in node.args if isinstance(a, torch.fx.Node)), None)
        self.roots[node] = self.roots.get(first, first) if aliases and first is not None else node

    def value(self, v, type_name=""):
        if isinstance(v, torch.fx.Node):
            if v.op == "placeholder" and v not in self.replaced:
                self.used.add(v)
            return self.names[v]
        if v is None or isinstance(v, bool):
            return str(v)
        if isinstance(v, int):
            return str(v)
        if isinstance(v, float):
            return repr(v) if math.isfinite(v) else f'float("{v}")'
        if isinstance(v, str):
            return json.dumps(v)
        if v == torch.float32:
            return f"real({self.like})"
        if v in (torch.float16, torch.bfloat16):
            return f"real16({self.like}, {DTYPE_CODES[v]})"
        if isinstance(v, torch.dtype):
            if v not in DTYPE_CODES:
                raise Unwritable(str(v))
            return str(DTYPE_CODES[v])
        if isinstance(v, torch.device):
            return f"{self.like}.device"
        if isinstance(v, torch.memory_format):
            return str(FORMAT_CODES[v])
        if isinstance(v, (list, tuple)):
            return self._list(v, type_name)
        raise Unwritable(f"{type(v).__name__} {v}")

    def _list(self, v, type_name):
        if not v:
            return "no_ints()"
        text = "[" + ", ".join(self.value(one) for one in v) + "]"
        if "Optional[Tensor]" not in type_name:
            return text
        name = self._fresh("indices")
        self.lines.append(f"{name}: List[Optional[Tensor]] = {text}")
        return name

    def _return(self, outputs):
        texts = [self.value(one) for one in outputs if one is not None]
        if not texts:
            return
        self.lines.append(f"return {texts[0]}" if len(texts) == 1 else f"return ({', '.join(texts)})")


def function_text(arguments, body):
    text = f"def forward({', '.join(arguments)}):\n{body}"
    return "".join(helper for call, helper in HELPERS.items() if call in body) + text
