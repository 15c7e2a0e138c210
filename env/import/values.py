"""How the values of a tensor are drawn, in the terms of a problem file: from the kind that recorder.py found, or from
the values."""

import base64
import math
import zlib

import torch

from .arguments import DTYPES
from .recorder import LARGE
from .refusals import Refusal

MOST_PACKED = 1 << 20  # largest text of stored values, in bytes
LARGEST = {torch.float32: 1e30, torch.bfloat16: 1e30, torch.float16: 3e4}  # magnitude of a mask's -inf
LOOKED_AT = 1 << 20  # elements used for statistics


def rounded(number):
    return float(f"{number:.6g}")


def drawn(distribution, scale=1.0, offset=0.0):
    return {"distribution": distribution, "scale": rounded(scale), "offset": rounded(offset)}


def from_kind(kind, dtype):
    """The keys of a problem file for such values; None if they cannot be expressed."""
    name, *rest = kind
    if dtype == torch.bool:
        if name != "bool" and not (name == "integers" and rest == [0, 2]):
            return None
        probability = rest[0] if name == "bool" else 0.5
        return drawn("uniform", 1.0, 2 * probability - 1) if 0 < probability < 1 else None
    if dtype == torch.int64:
        return drawn("uniform01", rest[1] - rest[0], rest[0]) if name == "integers" and rest[1] > rest[0] else None
    if name == "uniform" and rest[1] > rest[0]:
        low, high = rest
        return drawn("uniform01", high) if low == 0 else drawn("uniform", (high - low) / 2, (high + low) / 2)
    if name == "normal" and rest[1] > 0:
        return drawn("normal", rest[1], rest[0])
    if name == "two" and rest[0] != rest[1] or name == "integers" and rest[1] - rest[0] == 2:
        low, high = rest if name == "two" else (rest[0], rest[1] - 1)
        return drawn("signs", (high - low) / 2, (high + low) / 2)
    if name == "integers" and rest[1] > rest[0]:
        return drawn("uniform", (rest[1] - rest[0]) / 2, (rest[1] + rest[0]) / 2)
    if name == "constant":  # as a constant, a kernel that ignored it would pass
        return drawn("normal", 0.5 * abs(rest[0]) or 1.0, rest[0])
    return None


def from_values(tensor):
    """The same, estimated from the values."""
    values = tensor.detach().flatten()[:LOOKED_AT]
    if tensor.dtype == torch.bool:
        probability = float(values.float().mean())
        return from_kind(("bool", min(max(probability, 0.01), 0.99)), torch.bool)
    if tensor.dtype == torch.int64:
        return from_kind(("integers", int(values.min()), int(values.max()) + 1), torch.int64)
    values = values.double()
    lowest = values == -math.inf
    if bool(lowest.any()) and bool((values[~lowest] == 0).all()):  # a mask that is added: as large as finite values get
        return from_kind(("two", -LARGEST[tensor.dtype], 0.0), tensor.dtype)
    if not bool(values.isfinite().all()):
        return None
    low, high, mean = float(values.min()), float(values.max()), float(values.mean())
    if low == high:
        return from_kind(("constant", low), tensor.dtype)
    if values.numel() > 2 and bool(((values == low) | (values == high)).all()):
        return from_kind(("two", low, high), tensor.dtype)
    deviation = float(values.std(correction=0))
    tails = float(((values - mean) / deviation).pow(4).mean())  # 1.8 for uniform values, 3 for normal ones
    if tails < 2.3 and values.numel() >= 8:
        near = 0.02 * (high - low)
        low, high = (round(low) if abs(low - round(low)) < near else low,
                     round(high) if abs(high - round(high)) < near else high)
        return from_kind(("uniform", low, high), tensor.dtype)
    error = deviation / math.sqrt(values.numel())  # of the mean; prefers the standard normal distribution within it
    mean = 0.0 if abs(mean) < 3 * error else mean
    deviation = 1.0 if abs(deviation - 1) < 3 * error else deviation
    return from_kind(("normal", mean, deviation), tensor.dtype)


def stored(tensor):
    """The values as text; None if it is too long."""
    data = tensor.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
    packed = base64.b64encode(zlib.compress(data, 9)).decode()
    return {"distribution": "stored", "values": packed} if len(packed) <= MOST_PACKED else None


def integers_of_example(argument, extent):
    """The range of an integer input that nothing describes. `extent`: of the dimension that it indexes, or None."""
    low, high = int(argument.min()), int(argument.max())
    if extent is not None and 0 <= low and high < extent:
        return ("integers", 0, extent)
    if low == high:  # as a constant, a kernel that ignored it would pass
        low, high = min(low, 0), max(high, 1)
    return ("integers", low, high + 1)


def input_spec(case, argument, name, distribution, extent=None):
    """`distribution` is the user's choice for floating-point inputs, or None. `extent`: that an integer input indexes."""
    if distribution and argument.dtype.is_floating_point:
        return drawn(distribution)
    kind = case.recorder.kind_of(argument)
    spec = from_kind(kind, argument.dtype) if kind else None
    if spec is None and not case.recorder.skipped:
        spec = from_kind(integers_of_example(argument, extent), torch.int64) if argument.dtype == torch.int64 else \
            from_values(argument) or stored(argument)
        if argument.dtype == torch.int64 and spec["distribution"] != "stored":
            case.notes.append(f"`{name}` is drawn from {spec['offset']:g} to {spec['offset'] + spec['scale'] - 1:g}, " +
                              ("the range that it indexes" if extent else "as the example has it"))
    if spec is None and argument.dtype.is_floating_point:
        spec = drawn("mixture")
    if spec is None:
        raise Refusal(f"input `{name}`: nothing says how its values are drawn",
                      "make get_inputs draw it with torch.randint or torch.rand")
    return spec


def state_spec(case, tensor, name, is_parameter):
    kind = case.recorder.kind_of(tensor)
    if tensor.dtype.is_floating_point and tensor.dtype not in DTYPES:
        raise Refusal(f"its `{name}` has dtype {tensor.dtype}, which problems do not have",
                      "convert it to float32, float16 or bfloat16")
    if name.endswith("running_var"):  # around 1, where it starts: near 0 it would amplify the rounding of what is normalised
        return drawn("positive", 1.0, 0.5)
    if name.endswith("running_mean"):
        return drawn("normal")
    random = kind is not None and kind[0] != "constant"
    if tensor.dtype.is_floating_point and (is_parameter or random):
        spec = from_kind(kind, tensor.dtype) if kind else None
        if spec is None and tensor.numel() < LARGE:
            spec = from_values(tensor)
        return spec or drawn("normal", 0.02)
    spec = stored(tensor) if tensor.dtype in DTYPES else None
    if spec is None:
        raise Refusal(f"its `{name}` ({tensor.dtype}, {tensor.numel()} elements) holds values that must stay as they are, "
                      "and they are too many for a problem file or of another type than floats of 32 and 16 bits, int64 and bool",
                      "compute it in forward, or make it an nn.Parameter if any values would do")
    return spec


def draw(spec, shape, dtype):
    """New values by the keys of the problem file, for comparing two computations."""
    if spec["distribution"] == "stored":
        data = bytearray(zlib.decompress(base64.b64decode(spec["values"])))
        return torch.frombuffer(data, dtype=dtype).reshape(shape).clone()
    values = torch.empty(shape, dtype=torch.float32)
    if spec["distribution"] == "uniform":
        values.uniform_(-1, 1)
    elif spec["distribution"] in ("uniform01", "positive"):
        values.uniform_(0, 1)
    elif spec["distribution"] == "signs":
        values.bernoulli_(0.5).mul_(2).sub_(1)
    else:
        values.normal_()
    if spec["distribution"] == "positive":
        values.add_(0.01)
    values.mul_(spec["scale"]).add_(spec["offset"])
    if dtype == torch.bool:
        return values > 0
    if dtype == torch.int64:
        values.floor_().clamp_(max=spec["scale"] + spec["offset"] - 1)
    return values.to(dtype)
