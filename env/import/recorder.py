"""Records how each tensor was filled, from the calls that filled it."""

import math

import torch
from torch.utils._python_dispatch import TorchDispatchMode

LARGE = 1 << 24  # elements; larger tensors are described, not filled

# Operators that fill a tensor, and the kind of its values. A kind is ("uniform", low, high), ("normal", mean, deviation),
# ("integers", low, high), ("bool", probability) or ("constant", value).
FACTORIES = {
    "rand": lambda args: ("uniform", 0.0, 1.0), "rand_like": lambda args: ("uniform", 0.0, 1.0),
    "randn": lambda args: ("normal", 0.0, 1.0), "randn_like": lambda args: ("normal", 0.0, 1.0),
    "randint": lambda args: ("integers", 0, args[0]), "randint.low": lambda args: ("integers", args[0], args[1]),
    "zeros": lambda args: ("constant", 0.0), "ones": lambda args: ("constant", 1.0),
    "zeros_like": lambda args: ("constant", 0.0), "ones_like": lambda args: ("constant", 1.0),
    "full": lambda args: ("constant", float(args[1])), "scalar_tensor": lambda args: ("constant", float(args[0])),
}
FILLERS = {
    "uniform_": lambda a=0.0, b=1.0: ("uniform", float(a), float(b)),
    "normal_": lambda mean=0.0, std=1.0: ("normal", float(mean), float(std)),
    "fill_": lambda value=0.0: ("constant", float(value)), "zero_": lambda: ("constant", 0.0),
}
KEEPS = {"_to_copy", "clone", "detach", "contiguous", "view", "_unsafe_view", "unsqueeze", "squeeze", "t",
         "transpose", "permute", "expand", "alias", "clamp_", "slice", "select"}


def scaled(kind, factor, shift):
    """The kind of factor * x + shift."""
    name, *rest = kind
    if name == "uniform" and factor != 0:
        ends = sorted(factor * end + shift for end in rest)
        return ("uniform", ends[0], ends[1])
    if name == "normal":
        return ("normal", factor * rest[0] + shift, abs(factor) * rest[1])
    if name == "integers" and factor == 1 and float(shift).is_integer():
        return ("integers", rest[0] + int(shift), rest[1] + int(shift))
    if name == "integers" and rest[1] - rest[0] == 2:
        return ("two", factor * rest[0] + shift, factor * (rest[1] - 1) + shift)
    if name == "two":
        return ("two", factor * rest[0] + shift, factor * rest[1] + shift)
    if name == "constant":
        return ("constant", factor * rest[0] + shift)
    return None


def affine(name, args):
    """Factor and shift of an operator that scales or shifts a tensor by a number; else None."""
    if len(args) < 2 or isinstance(args[1], torch.Tensor) or isinstance(args[1], bool):
        return None
    number = args[1]
    if name in ("mul", "mul_"):
        return (number, 0)
    if name in ("div", "div_") and number != 0:
        return (1 / number, 0)
    if name in ("add", "add_"):
        return (1, number)
    if name in ("sub", "sub_"):
        return (1, -number)
    if name == "rsub":
        return (-1, number)
    return None


class Recorder(TorchDispatchMode):
    """While active, records how each storage was filled. Large tensors of a known kind are not filled: their memory is
    never touched, so that problems larger than this machine's memory can be imported."""

    def __init__(self):
        super().__init__()
        self.kinds = {}
        self.skipped = False

    def kind_of(self, tensor):
        return self.kinds.get(tensor.untyped_storage()._cdata)

    def _remember(self, tensor, kind):
        key = tensor.untyped_storage()._cdata
        if kind is None:
            self.kinds.pop(key, None)
        else:
            self.kinds[key] = kind

    def _kind(self, name, overload, args):
        factory = FACTORIES.get(f"{name}.{overload}", FACTORIES.get(name))
        if factory:
            return factory(args)
        tensor = args[0] if args and isinstance(args[0], torch.Tensor) else None
        if name == "copy_":
            return self.kind_of(args[1])
        before = self.kind_of(tensor) if tensor is not None else None
        if name in FILLERS and not any(isinstance(a, torch.Tensor) for a in args[1:]):
            whole = tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()
            return FILLERS[name](*args[1:]) if whole else None
        if before is None:
            return None
        if name == "erfinv_" and before[0] == "uniform":  # torch.nn.init.trunc_normal_
            return ("normal", 0.0, math.sqrt(0.5))
        if name in ("gt", "ge", "lt", "le") and before[0] == "uniform" and not isinstance(args[1], torch.Tensor):
            above = min(max((before[2] - args[1]) / (before[2] - before[1]), 0.0), 1.0)
            return ("bool", above if name in ("gt", "ge") else 1 - above)
        if name in KEEPS:
            return before
        change = affine(name, args)
        return scaled(before, *change) if change else None

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name, overload = func._schema.name.removeprefix("aten::"), func._schema.overload_name
        kind = self._kind(name, overload, args)
        output = self._unfilled(name, args, kwargs) if kind is not None else None
        if output is None:
            output = func(*args, **kwargs)
        if isinstance(output, torch.Tensor):
            self._remember(output, kind)
        return output

    def _unfilled(self, name, args, kwargs):
        """The result of a call on a large tensor, without computing it; None if the call must be made."""
        if name in FILLERS or (name.endswith("_") and args and isinstance(args[0], torch.Tensor)):
            if args[0].numel() < LARGE:
                return None
            self.skipped = True
            return args[0]
        options = {key: kwargs[key] for key in ("dtype", "device") if kwargs.get(key) is not None}
        if name in ("rand", "randn", "zeros", "ones", "full", "randint"):
            shape = next(a for a in args if isinstance(a, (list, tuple, torch.Size)))
            if math.prod(shape) < LARGE:
                return None
            if name == "randint":
                options.setdefault("dtype", torch.int64)
            self.skipped = True
            return torch.empty(list(shape), **options)
        if name in ("mul", "div", "add", "sub", "rsub", "gt", "ge", "lt", "le", "clone", "_to_copy"):
            if args[0].numel() < LARGE:
                return None
            if name in ("gt", "ge", "lt", "le"):
                options["dtype"] = torch.bool
            self.skipped = True
            return torch.empty_like(args[0], **options)
        return None
