"""How the values of a tensor are drawn again, in the words of a problem file: from the kind that recorder.py names, or
from what it holds."""

import base64
import math
import zlib

import torch

MOST_PACKED = 1 << 20  # bytes of text that stored values may take
LOOKED_AT = 1 << 20  # elements that statistics look at


def rounded(number):
    return float(f"{number:.6g}")


def drawn(distribution, scale=1.0, offset=0.0):
    return {"distribution": distribution, "scale": rounded(scale), "offset": rounded(offset)}


def from_kind(kind, dtype):
    """What a problem file says of such values; None where it has no words for them."""
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
    if name == "constant":  # a kernel that left it out would pass if it stayed what it is
        return drawn("normal", 0.5 * abs(rest[0]) or 1.0, rest[0])
    return None


def from_values(tensor):
    """The same from the values themselves."""
    values = tensor.detach().flatten()[:LOOKED_AT]
    if tensor.dtype == torch.bool:
        probability = float(values.float().mean())
        return from_kind(("bool", min(max(probability, 0.01), 0.99)), torch.bool)
    if tensor.dtype == torch.int64:
        return from_kind(("integers", int(values.min()), int(values.max()) + 1), torch.int64)
    values = values.double()
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
    error = deviation / math.sqrt(values.numel())  # of the mean; a standard normal distribution is meant where it may be
    mean = 0.0 if abs(mean) < 3 * error else mean
    deviation = 1.0 if abs(deviation - 1) < 3 * error else deviation
    return from_kind(("normal", mean, deviation), tensor.dtype)


def stored(tensor):
    """The values themselves as text; None if they are too many."""
    data = tensor.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
    packed = base64.b64encode(zlib.compress(data, 9)).decode()
    return {"distribution": "stored", "values": packed} if len(packed) <= MOST_PACKED else None


def draw(spec, shape, dtype):
    """New values as the problem file asks for them, for comparing two computations."""
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
    return values.floor_().clamp_(max=spec["scale"] + spec["offset"] - 1).to(dtype) if dtype == torch.int64 else values
