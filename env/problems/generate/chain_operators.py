"""The operators of chains.py: a chain in the making, the estimated value range of its current tensor, and every
operator that can follow the main one, with the conditions under which it may."""

import dataclasses
import fractions
import math
import re

INFINITE = float("inf")

# --- The current tensor and the chain ---


@dataclasses.dataclass
class Values:
    shape: list                  # expressions over the size symbols
    low: float = -INFINITE       # no value is below ...
    high: float = INFINITE       # ... or above
    centre: float = 0.0          # estimated mean
    spread: float = 0.5          # estimated standard deviation
    is_linear: bool = True       # only linear operators since the main one: an average could be taken of the inputs
    is_rectified: bool = False   # rectified, and not shifted since
    is_share: bool = False       # a softmax, or a small multiple of one
    calm: fractions.Fraction = 1  # squared factor by which errors have shrunk relative to the values

    def is_around_zero(self):
        return self.low < -0.5 and self.high > 0.5 and abs(self.centre) <= self.spread

    def is_bounded(self):
        return self.high - self.low < 8


@dataclasses.dataclass
class Chain:
    """A problem under construction."""
    sizes: dict                  # {"full": {"B": 64, ...}, "small": ...}
    values: Values
    main_shape: list
    names: list                  # of the operators, for the title
    kinds: list                  # of the operators after the main one
    lines: list                  # of the reference, each `z = ...`
    families: list
    inputs: list                 # (name, shape, keys)
    params: list
    flops: list                  # (count, elements)
    reduction: str               # of the main operator
    min_flops: str
    has_bias: bool = True        # the main operator

    def element_flops(self, count):
        self.flops.append((count, product(self.values.shape)))

    def param(self, name, shape, keys=()):
        self.params.append((name, shape, ("distribution = \"normal\"",) + tuple(keys)))
        return name

    def spatial(self):
        return self.values.shape[2:]

    def channels(self):
        return self.values.shape[1]


def product(shape):
    factors = [dim if re.fullmatch(r"\w+", dim) else f"({dim})" for dim in shape if isinstance(dim, str)]
    number = math.prod(dim for dim in shape if isinstance(dim, int))
    return "*".join(factors + [str(number)] * (number > 1 or not factors))


def value_of(expression, symbols):
    return eval(str(expression).replace("/", "//"), {"__builtins__": {}}, dict(symbols))


def is_even(chain, dim):
    """At every size, and at least 6."""
    return all(value_of(dim, symbols) % 2 == 0 and value_of(dim, symbols) >= 6 for symbols in chain.sizes.values())


def halved(dim):
    if dim.startswith("2*") and dim[2:].isalpha():
        return dim[2:]
    if dim.endswith("/2") and dim[:-2].isalpha():
        return dim[:-2] + "/4"
    return f"{dim}/2" if dim.isalpha() else f"({dim})/2"


# --- The operators after the main one ---


class Operator:
    kind = name = ""
    family = None
    flops = 1                    # an element
    group = ""                   # a chain has at most one operator of a group (draw_chain has the exceptions)

    def allowed(self, chain, values, before):
        """`before`: the kind of the preceding operator; "main" for the first."""
        return True

    def apply(self, chain, values):
        """Updates `values`; returns the new expression for z."""
        raise NotImplementedError


def unary(kind, name, text, flops, low=-INFINITE, high=INFINITE):
    """A nonlinear elementwise function that is not linear around 0."""
    class Rectifier(Operator):
        group = "rectifier"

        def allowed(self, chain, values, before):
            return values.is_around_zero() and not values.is_rectified and not values.is_share

        def apply(self, chain, values):
            values.low, values.high = max(values.low, low), min(values.high, high)
            values.centre, values.spread = 0.4 * values.spread, 0.6 * values.spread
            values.is_linear, values.is_rectified = False, True
            return text
    Rectifier.kind, Rectifier.name, Rectifier.flops = kind, name, flops
    return Rectifier()


class Squash(Operator):
    """Maps to a bounded range: sigmoid, tanh."""
    def __init__(self, kind, name, low, calm):
        self.kind, self.name, self.low, self.calm, self.flops = kind, name, low, calm, 4
        self.group = "squash"

    def allowed(self, chain, values, before):
        is_half = self.low == 0 and values.is_rectified  # sigmoid after a ReLU: mostly 1/2
        near = abs(values.centre) <= 2 * values.spread
        return near and not values.is_bounded() and not values.is_share and not is_half

    def apply(self, chain, values):
        values.low, values.high, values.centre, values.spread = self.low, 1.0, (self.low + 1) / 2, 0.4
        values.is_linear, values.is_rectified = False, self.low == 0
        values.calm *= self.calm
        return f"torch.{self.kind}(z)"


class Clip(Operator):
    group, flops = "clip", 2

    def __init__(self, kind, name, low, high):
        self.kind, self.name, self.bounds = kind, name, (low, high)

    def allowed(self, chain, values, before):
        low, high = self.bounds
        middle = abs(values.centre) <= 1.5 * values.spread
        return values.low < low - 0.25 and values.high > high + 0.25 and middle and not values.is_share

    def apply(self, chain, values):
        low, high = self.bounds
        values.low, values.high, values.is_linear = max(values.low, low), min(values.high, high), False
        if high == INFINITE:
            return f"torch.clamp(z, min={low})"
        if low == -INFINITE:
            return f"torch.clamp(z, max={high})"
        return f"torch.{self.kind}(z, {low}, {high})"


class Constant(Operator):
    """A product or sum with a constant."""
    group = "constant"

    def __init__(self, kind, name, text, factor=1.0, term=0.0):
        self.kind, self.name, self.text, self.factor, self.term = kind, name, text, factor, term

    def allowed(self, chain, values, before):
        return not (values.is_share and self.term) and before not in ("bias", "multiply", "residual")

    def apply(self, chain, values):
        values.low, values.high = values.low * self.factor + self.term, values.high * self.factor + self.term
        values.centre = values.centre * self.factor + self.term
        values.spread *= self.factor
        return self.text


class Bias(Operator):
    kind, name, group = "bias", "bias", "move"

    def allowed(self, chain, values, before):
        return not values.is_share and chain.channels() == chain.main_shape[1] and before != "norm"

    def apply(self, chain, values):
        values.low, values.high = -INFINITE, INFINITE
        values.spread += 0.5
        values.is_rectified = False
        shape = [chain.channels()] + [1] * len(chain.spatial())
        return "z + " + chain.param("shift", shape)


class Multiply(Operator):
    kind, name, group = "multiply", "multiply", "move"

    def allowed(self, chain, values, before):
        return chain.channels() == chain.main_shape[1] and before not in ("norm", "constant")

    def apply(self, chain, values):
        if not values.is_share:
            values.low, values.high = -INFINITE, INFINITE
        values.spread *= 1.2
        shape = [chain.channels()] + [1] * len(chain.spatial())
        return "z * " + chain.param("factor", shape, ("scale = 0.5", "offset = 1.0"))


class Residual(Operator):
    """Adds another input of the same shape."""
    kind, name, group = "residual", "residual", "residual"

    def allowed(self, chain, values, before):
        return not values.is_share and 1 not in values.shape

    def apply(self, chain, values):
        values.low, values.high = -INFINITE, INFINITE
        values.centre, values.spread, values.is_rectified = 0.0, values.spread + 1, False
        chain.inputs.append(("other", list(values.shape), ()))
        return "z + other"


class Skip(Operator):
    """Combines with the result of the main operator."""
    group = "residual"

    def __init__(self, kind, name, sign):
        self.kind, self.name, self.sign = kind, name, sign

    def allowed(self, chain, values, before):
        return not values.is_linear and values.shape == chain.main_shape and not values.is_share

    def apply(self, chain, values):
        values.low, values.high = -INFINITE, INFINITE
        values.is_rectified = False
        return f"z {self.sign} y"


class Norm(Operator):
    family, flops, group = "norm", 8, "norm"

    def __init__(self, kind, name, ranks):
        self.kind, self.name, self.ranks = kind, name, ranks

    def allowed(self, chain, values, before):
        cancelled = {"constant"} if self.kind == "group_norm" else {"constant", "bias", "multiply"}
        if self.kind == "rms_norm":
            cancelled = {"constant"}
        is_whole = chain.channels() == chain.main_shape[1] and 1 not in values.shape
        return len(values.shape) in self.ranks and is_whole and before not in cancelled and not values.is_share

    def apply(self, chain, values):
        # A norm stretches the narrow range after a sigmoid or a clip, and its errors.
        values.calm = fractions.Fraction(1, 64) if values.is_bounded() else 1
        values.low, values.high, values.centre, values.spread = -INFINITE, INFINITE, 0.0, 1.4
        values.is_rectified = False
        keys = ("scale = 0.5", "offset = 1.0")
        if self.kind == "instance_norm":
            return "torch.instance_norm(z, None, None, None, None, True, 0.1, 1e-5, False)"
        over = values.shape[-1] if self.kind in ("layer_norm", "rms_norm") else chain.channels()
        weight = chain.param("norm_weight", [over], keys)
        if self.kind == "rms_norm":
            return f"torch.rms_norm(z, [z.size(1)], {weight}, 1e-5)"
        bias = chain.param("norm_bias", [over])
        if self.kind == "batch_norm":
            return f"torch.batch_norm(z, {weight}, {bias}, None, None, True, 0.1, 1e-5, False)"
        if self.kind == "layer_norm":
            return f"torch.layer_norm(z, [z.size({len(values.shape) - 1})], {weight}, {bias}, 1e-5)"
        groups = 8 if len(values.shape) > 2 else 32
        return f"torch.group_norm(z, {groups}, {weight}, {bias}, 1e-5)"


class Pool(Operator):
    family, group = "pool", "pool"

    def __init__(self, kind, name):
        self.kind, self.name = kind, name

    def allowed(self, chain, values, before):
        if self.kind == "avg_pool" and (values.is_linear or values.is_share):
            return False
        return bool(chain.spatial()) and all(is_even(chain, dim) for dim in chain.spatial())

    def apply(self, chain, values):
        rank = len(chain.spatial())
        if self.kind == "max_pool":
            values.centre += 1.1 * values.spread
            values.spread, values.is_linear = 0.7 * values.spread, False
        else:
            values.spread *= 0.6
            values.calm *= 4
        values.shape[2:] = [halved(dim) for dim in chain.spatial()]
        return f"torch.{self.kind}{rank}d(z, [{', '.join(['2'] * rank)}])"


class OverChannels(Operator):
    family, group = "reduction", "ending"

    def __init__(self, kind, name):
        self.kind, self.name = kind, name

    def allowed(self, chain, values, before):
        whole = chain.channels() == chain.main_shape[1] and not values.is_share
        if self.kind == "sum":  # after a norm the sum is almost constant
            return whole and not values.is_linear and before not in ("squash", "constant") and "norm" not in chain.kinds
        if self.kind == "logsumexp":
            return whole and not (values.is_bounded() and values.high <= 1)
        # With bounded values the extreme of many is always the bound.
        return whole and (values.high == INFINITE if self.kind == "amax" else values.low == -INFINITE)

    def apply(self, chain, values):
        values.shape[1] = 1
        values.is_linear = values.is_linear and self.kind == "sum"
        if self.kind == "amax":
            values.centre, values.spread = values.centre + 2.4 * values.spread, 0.4 * values.spread
        elif self.kind == "amin":
            values.centre, values.spread = values.centre - 2.4 * values.spread, 0.4 * values.spread
        else:
            values.low, values.high = -INFINITE, INFINITE
            values.centre, values.spread = 8.0, 1.0
            values.calm *= 64
        return f"torch.{self.kind}(z, [1], True)"


class GlobalAverage(Operator):
    kind, name, family, group = "mean", "global average", "reduction", "ending"

    def allowed(self, chain, values, before):
        is_pinned = "norm" in chain.kinds or before == "squash"
        return bool(chain.spatial()) and not values.is_linear and not values.is_share and not is_pinned

    def apply(self, chain, values):
        dims = ", ".join(str(2 + i) for i in range(len(chain.spatial())))
        values.shape[2:] = [1] * len(chain.spatial())
        values.spread, values.calm = 0.1 * values.spread, values.calm * 256
        return f"torch.mean(z, [{dims}], True)"


class Softmax(Operator):
    family, group, flops = "softmax", "ending", 5

    def __init__(self, kind, name):
        self.kind, self.name = kind, name

    def allowed(self, chain, values, before):
        return chain.channels() == chain.main_shape[1] and not values.is_bounded()

    def apply(self, chain, values):
        values.is_linear = False
        if self.kind == "softmax":
            values.low, values.high, values.centre, values.spread, values.is_share = 0.0, 1.0, 0.02, 0.02, True
        else:
            values.low, values.high, values.centre, values.spread = -INFINITE, 0.0, -5.0, 1.0
        return f"torch.{self.kind}(z, 1)"


OPERATORS = [
    (4, unary("relu", "ReLU", "torch.relu(z)", 1, low=0.0)),
    (3, unary("leaky_relu", "LeakyReLU", "torch.leaky_relu(z, 0.1)", 2)),
    (5, unary("gelu", "GELU", "torch.gelu(z)", 7, low=-0.17)),
    (5, unary("silu", "SiLU", "torch.silu(z)", 5, low=-0.28)),
    (4, unary("mish", "Mish", "torch.mish(z)", 6, low=-0.31)),
    (4, unary("hardswish", "HardSwish", "torch.hardswish(z)", 4, low=-0.38)),
    (3, unary("elu", "ELU", "torch.elu(z, 1.0)", 4, low=-1.0)),
    (3, unary("softplus", "softplus", "torch.softplus(z)", 5, low=0.0)),
    (3, Squash("sigmoid", "sigmoid", 0.0, 16)),
    (4, Squash("tanh", "tanh", -1.0, 1)),
    (2, Clip("hardtanh", "HardTanh", -1.0, 1.0)),
    (2, Clip("clamp", "clamp", -0.5, 1.5)),
    (1, Clip("clamp", "minimum with a constant", -INFINITE, 0.75)),
    (1, Clip("clamp", "maximum with a constant", -0.5, INFINITE)),
    (3, Constant("constant", "scale", "z * 2.0", factor=2.0)),
    (2, Constant("constant", "scale", "z * 0.5", factor=0.5)),
    (2, Constant("constant", "divide", "z / 1.5", factor=1 / 1.5)),
    (2, Constant("constant", "subtract", "z - 0.5", term=-0.5)),
    (1, Constant("constant", "add", "z + 0.25", term=0.25)),
    (5, Bias()),
    (4, Multiply()),
    (4, Residual()),
    (3, Skip("skip", "residual", "+")),
    (2, Skip("gate", "gate", "*")),
    (4, Norm("batch_norm", "BatchNorm", (2, 4, 5))),
    (6, Norm("group_norm", "GroupNorm", (2, 4, 5))),
    (3, Norm("instance_norm", "InstanceNorm", (4, 5))),
    (4, Norm("layer_norm", "LayerNorm", (2, 4))),
    (3, Norm("rms_norm", "RMSNorm", (2,))),
    (5, Pool("max_pool", "max pooling")),
    (3, Pool("avg_pool", "average pooling")),
    (3, OverChannels("amax", "maximum")),
    (2, OverChannels("amin", "minimum")),
    (3, OverChannels("sum", "sum")),
    (3, OverChannels("logsumexp", "LogSumExp")),
    (4, GlobalAverage()),
    (4, Softmax("softmax", "softmax")),
    (2, Softmax("log_softmax", "log-softmax")),
]
