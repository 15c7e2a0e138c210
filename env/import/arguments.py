"""The arguments of a module, and the tensors of the problem that stand for them. A list, tuple or dictionary of tensors
becomes one tensor each; numbers, texts and None become constants; a strided or broadcast view becomes the contiguous memory
that it looks into, and the graph says how."""

import math

import torch

from .refusals import Refusal

FLOATS = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}
DTYPES = {**FLOATS, torch.int64: "int64", torch.bool: "bool"}
CONSTANTS = (bool, int, float, str)


def check_tensor(name, tensor):
    if tensor.device.type != "cpu":
        raise Refusal(f"get_inputs() needs CUDA: input `{name}` is on {tensor.device}",
                      "make get_inputs return CPU tensors; Kevin moves them by itself")
    if tensor.dtype not in DTYPES:
        raise Refusal(f"input `{name}` has dtype {tensor.dtype}, which problems do not have",
                      "make it float32, float16 or bfloat16" if tensor.dtype.is_floating_point else "make it int64 or bool")
    if tensor.layout != torch.strided:
        raise Refusal(f"input `{name}` is {tensor.layout}", "give dense tensors")
    if tensor.numel() == 0:
        raise Refusal(f"input `{name}` is empty: shape {list(tensor.shape)}", "sizes start at 1")


class View:
    """How a tensor looks into its memory, the contiguous `base`: a part of each dimension of the base, then their order,
    then dimensions that repeat (stride 0, or one element). Serves tensors of this layout at any size. `like`: for a
    dimension that repeats, the number of another tensor with the same extent there."""

    def __init__(self, name, tensor, like):
        self.shape, self.strides, self.like = list(tensor.shape), list(tensor.stride()), like
        self.repeated = [d for d, n in enumerate(self.shape) if self.strides[d] == 0 or n == 1]
        self.order = sorted((d for d in range(tensor.dim()) if d not in self.repeated), key=lambda d: -self.strides[d])
        offset = tensor.storage_offset()
        self.parts, self.base_strides = [], []  # each part: where it begins, its extent, the extent of the base
        for d in self.order:
            self._add(name, self.shape[d], self.strides[d], offset)
        if self.base_strides and self.base_strides[-1] > 1:
            self._add(name, 1, 1, offset)
        self.base_shape = [extent for _, _, extent in self.parts]
        self.start = sum(begin * stride for (begin, _, _), stride in zip(self.parts, self.base_strides))
        last = offset - self.start + sum((n - 1) * stride for n, stride in zip(self.base_shape, self.base_strides))
        if last >= tensor.untyped_storage().nbytes() // tensor.element_size():
            raise Refusal(f"input `{name}` is a view without whole rows: shape {self.shape}, strides {self.strides}",
                          "pass a copy (.contiguous()), or the tensor that it is a view of")

    def _add(self, name, count, stride, offset):
        extent = count
        if self.parts:
            before = self.base_strides[-1]
            if before % stride or before < stride * count:
                raise Refusal(f"input `{name}` overlaps itself: shape {self.shape}, strides {self.strides}",
                              "pass a copy (.contiguous()), or the tensor that it is a view of")
            extent = before // stride
        begin = (offset // stride) % extent if self.parts else 0
        self.parts.append((begin if begin + count <= extent else 0, count, extent))
        self.base_strides.append(stride)

    def base(self, tensor):
        """The memory that a tensor of this layout looks into."""
        if list(tensor.shape) != self.shape or any(
                a != b for a, b, n in zip(tensor.stride(), self.strides, self.shape) if n > 1):
            raise Refusal(f"get_inputs() gives other strides at each call: {list(tensor.stride())} after {self.strides}",
                          "make them equal in every call")
        return torch.as_strided(tensor, self.base_shape, self.base_strides, tensor.storage_offset() - self.start)

    def look(self, base, tensors):
        for d, (begin, count, extent) in enumerate(self.parts):
            if count < extent and count > 1 and extent % count == 0 and begin % count == 0:  # of equal parts, at any size
                width = base.shape[d] // (extent // count)
                base = base.narrow(d, begin // count * width, width)
            elif count < extent:
                base = base.narrow(d, begin, count)
        if len(self.parts) > len(self.order):
            base = base.squeeze(-1)
        places = [self.order.index(d) for d in sorted(self.order)]
        if places != sorted(places):
            base = base.permute(places)
        for d in self.repeated:
            base = base.unsqueeze(d)
        if all(self.shape[d] == 1 for d in self.repeated):
            return base
        return base.expand([self._extent(d, base, tensors) for d in range(len(self.shape))])

    def _extent(self, d, base, tensors):
        if d not in self.repeated or self.shape[d] == 1:
            return base.shape[d]
        return tensors[self.like[d]].shape[d] if d in self.like else self.shape[d]

    def described(self):
        """For the drop-in, which makes the base of a tensor and compares the layout."""
        return {"shape": self.shape, "repeated": self.repeated, "order": self.order, "parts": self.parts,
                "like": {str(d): i for d, i in self.like.items()}}


def views_of(named):
    """A View for each tensor that is not contiguous, else None."""
    plain = [(i, list(t.shape)) for i, (_, t) in enumerate(named) if t.is_contiguous()]
    views = []
    for name, tensor in named:
        like = {}
        for d, n in enumerate(tensor.shape):
            same = [i for i, shape in plain if len(shape) > d and shape[d] == n]
            if same:
                like[d] = same[0]
        views.append(None if tensor.is_contiguous() else View(name, tensor, like))
    return views


def taken_apart(name, value, tensors):
    """The structure of one argument; its tensors are appended to `tensors` as (name, tensor)."""
    if isinstance(value, torch.Tensor):
        check_tensor(name, value)
        tensors.append((name, value.detach()))
        return {"tensor": len(tensors) - 1}
    if type(value) is float and not math.isfinite(value):
        return {"value": {"float": str(value)}}  # JSON has no word for it, and a NaN does not equal a NaN
    if value is None or type(value) in CONSTANTS:
        return {"value": value}
    if type(value) in (list, tuple):
        parts = [taken_apart(f"{name}_{i}", part, tensors) for i, part in enumerate(value)]
        return {"list": parts, "tuple": type(value) is tuple}
    if type(value) is dict and all(isinstance(key, str) for key in value):
        return {"dict": [[key, taken_apart(f"{name}_{key}", part, tensors)] for key, part in value.items()]}
    raise Refusal(f"input `{name}` is a {type(value).__name__}, which a problem does not have",
                  "give tensors, numbers, texts, None, and lists, tuples or dictionaries of these")


def constant(structure):
    """The value of an argument that is no tensor."""
    value = structure["value"]
    return float(value["float"]) if isinstance(value, dict) else value


def put_together(structure, tensors):
    if "tensor" in structure:
        return tensors[structure["tensor"]]
    if "list" in structure:
        parts = [put_together(part, tensors) for part in structure["list"]]
        return tuple(parts) if structure["tuple"] else parts
    if "dict" in structure:
        return {key: put_together(part, tensors) for key, part in structure["dict"]}
    return constant(structure)


class Arguments:
    """`names` and `tensors`: of the problem's inputs; `structures`: of each argument; `keywords`: passed by name."""

    def __init__(self, given, names, by_name):
        found = []
        self.argument_names, self.by_name = names, by_name
        self.structures = [taken_apart(name, value, found) for name, value in zip(names, given)]
        self.names = [name for name, _ in found]
        self.views = views_of(found)
        self.tensors = self.bases([tensor for _, tensor in found])

    def is_plain(self):
        """Whether the module takes these tensors as they are, and nothing else."""
        return not self.by_name and all(view is None for view in self.views) and all(
            "tensor" in structure for structure in self.structures)

    def bases(self, tensors):
        return [tensor if view is None else view.base(tensor) for tensor, view in zip(tensors, self.views)]

    def tensors_of(self, given):
        """The problem's tensors of other arguments of the same structure."""
        found = []
        if [taken_apart(name, value, found) for name, value in zip(self.argument_names, given)] != self.structures:
            raise Refusal("get_inputs() gives other arguments at each call", "make their number and structure equal")
        return self.bases([tensor for _, tensor in found])

    def looked_at(self, tensors):
        return [tensor if view is None else view.look(tensor, tensors) for tensor, view in zip(tensors, self.views)]

    def values(self, tensors):
        """The arguments that these tensors of the problem stand for: in order, and by name."""
        tensors = self.looked_at(tensors)
        values = [put_together(structure, tensors) for structure in self.structures]
        return ([], dict(zip(self.argument_names, values))) if self.by_name else (values, {})

    def call(self, function, tensors):
        in_order, by_name = self.values(tensors)
        return function(*in_order, **by_name)

    def constants(self):
        """Of the arguments that are constants: (name, value)."""
        return [(name, constant(structure)) for name, structure in zip(self.argument_names, self.structures)
                if "value" in structure]

    def described(self):
        """For the drop-in (tools/export/package/drop_in_part.py): the arguments, and the views of their tensors."""
        found = []
        for name, structure in zip(self.argument_names, self.structures):
            if "tensor" in structure:
                found.append({"name": name, "tensor": True})
            elif "value" in structure:
                found.append({"name": name, "value": structure["value"]})
            else:
                found.append({"name": name, "parts": structure})
        return found, [None if view is None else view.described() for view in self.views]


class Adapter(torch.nn.Module):
    """A function or module that takes the problem's tensors in order."""

    def __init__(self, function, arguments):
        super().__init__()
        self.function = function
        self.kevin_arguments = arguments

    def forward(self, *tensors):
        return self.kevin_arguments.call(self.function, list(tensors))
