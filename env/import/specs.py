"""From what each tensor of a problem is drawn: the module's arguments and its own tensors."""

import torch

from .recorder import LARGE
from .refusals import Refusal
from .values import drawn, from_kind, from_values, stored

STORABLE = (torch.float32, torch.int64, torch.bool)


def input_spec(case, argument, name, distribution):
    """`distribution` is the person's choice for floating-point inputs, or None."""
    if distribution and argument.dtype.is_floating_point:
        return drawn(distribution)
    kind = case.recorder.kind_of(argument)
    spec = from_kind(kind, argument.dtype) if kind else None
    if spec is None and not case.recorder.skipped:
        spec = from_values(argument) or stored(argument)
        if argument.dtype == torch.int64 and spec["distribution"] != "stored":
            case.notes.append(f"`{name}` is drawn from {spec['offset']:g} to {spec['offset'] + spec['scale'] - 1:g}, as the "
                              "example has it")
    if spec is None and argument.dtype.is_floating_point:
        spec = drawn("mixture")
    if spec is None:
        raise Refusal(f"input `{name}`: nothing says how its values are drawn",
                      "make get_inputs draw it with torch.randint or torch.rand")
    return spec


def state_spec(case, tensor, name, is_parameter):
    kind = case.recorder.kind_of(tensor)
    if tensor.dtype.is_floating_point and tensor.dtype != torch.float32:
        raise Refusal(f"its `{name}` has dtype {tensor.dtype}, which problems do not have", "convert it to float32")
    if name.endswith("running_var"):
        return drawn("positive")
    if name.endswith("running_mean"):
        return drawn("normal")
    random = kind is not None and kind[0] != "constant"
    if tensor.dtype.is_floating_point and (is_parameter or random):
        spec = from_kind(kind, tensor.dtype) if kind else None
        if spec is None and tensor.numel() < LARGE:
            spec = from_values(tensor)
        return spec or drawn("normal", 0.02)
    spec = stored(tensor) if tensor.dtype in STORABLE else None
    if spec is None:
        raise Refusal(f"its `{name}` ({tensor.dtype}, {tensor.numel()} elements) holds values that must stay as they are, "
                      "and they are too many for a problem file or of another type than float32, int64 and bool",
                      "compute it in forward, or make it an nn.Parameter if any values would do")
    return spec
