#!/usr/bin/env python3
"""Writes env/problems/chains/*.toml: 80 chains in the manner of level 2, a main operator and 2 to 5 others, for
testing on what no training set holds. The same files on every machine.

    env/problems/generate/chains.py [--check]     # --check: say what differs or repeats and write nothing

Chains are drawn by chance, and drawn again when they are in level 2 already (as a sequence of operators, which is
read off the references' texts), are another chain's, or would waste work or lose their signal: a ReLU of what is
never negative, a scale in front of a norm, a sum of shares that is always 1. The rules are `allowed` of each
operator, on a rough picture of the values so far (Values).
"""

import ast
import dataclasses
import fractions
import hashlib
import math
import pathlib
import re
import sys
import tomllib

PROBLEMS = pathlib.Path(__file__).resolve().parent.parent / "env" / "problems"
SEED = "kevin chains 1"
COUNT = 80
INFINITE = float("inf")

# --- Chance: by hashes, so that no generator's version can change it ---


class Chance:
    def __init__(self, seed):
        self.seed, self.drawn = seed, 0

    def below(self, limit):
        self.drawn += 1
        digest = hashlib.sha256(f"{self.seed} {self.drawn}".encode()).digest()
        return int.from_bytes(digest[:8], "big") % limit

    def choice(self, options):
        return options[self.below(len(options))]

    def weighted(self, options):
        """Of [(weight, option)]."""
        at = self.below(sum(weight for weight, _ in options))
        for weight, option in options:
            at -= weight
            if at < 0:
                return option


# --- What is known of the tensor after each operator ---


@dataclasses.dataclass
class Values:
    shape: list                  # expressions over the size symbols
    low: float = -INFINITE       # no value is below ...
    high: float = INFINITE       # ... or above
    centre: float = 0.0          # about where the values lie, ...
    spread: float = 0.5          # ... and how widely
    is_linear: bool = True       # since the main operator: averages could be taken of the inputs
    is_rectified: bool = False   # bent already, and not moved since
    is_share: bool = False       # a softmax, or small parts of one
    calm: fractions.Fraction = 1  # by how much errors have shrunk against the values, squared

    def is_around_zero(self):
        return self.low < -0.5 and self.high > 0.5 and abs(self.centre) <= self.spread

    def is_bounded(self):
        return self.high - self.low < 8


@dataclasses.dataclass
class Chain:
    """A problem in the making."""
    sizes: dict                  # {"full": {"B": 64, ...}, "small": ...}
    values: Values
    main_shape: list
    names: list                  # of the operators, as people say them
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
    """At every size, and long enough to be halved."""
    return all(value_of(dim, symbols) % 2 == 0 and value_of(dim, symbols) >= 6 for symbols in chain.sizes.values())


def halved(dim):
    if dim.startswith("2*") and dim[2:].isalpha():
        return dim[2:]
    if dim.endswith("/2") and dim[:-2].isalpha():
        return dim[:-2] + "/4"
    return f"{dim}/2" if dim.isalpha() else f"({dim})/2"


# --- The operators that follow the main one ---


class Operator:
    kind = name = ""
    family = None
    flops = 1                    # an element
    group = ""                   # of these one a chain has at most one

    def allowed(self, chain, values, before):
        """`before`: the kind of the operator in front, "main" at first."""
        return True

    def apply(self, chain, values):
        """Changes `values` and gives the expression of z."""
        raise NotImplementedError


def unary(kind, name, text, flops, low=-INFINITE, high=INFINITE):
    """A nonlinear function of one value that bends around 0."""
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
    """Into a range: sigmoid, tanh."""
    def __init__(self, kind, name, low, calm):
        self.kind, self.name, self.low, self.calm, self.flops = kind, name, low, calm, 4
        self.group = "squash"

    def allowed(self, chain, values, before):
        is_half = self.low == 0 and values.is_rectified  # a sigmoid of what a ReLU left: mostly 1/2
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
    """y times or plus a number."""
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
    """Plus another input of the same shape."""
    kind, name, group = "residual", "residual", "residual"

    def allowed(self, chain, values, before):
        return not values.is_share and 1 not in values.shape

    def apply(self, chain, values):
        values.low, values.high = -INFINITE, INFINITE
        values.centre, values.spread, values.is_rectified = 0.0, values.spread + 1, False
        chain.inputs.append(("other", list(values.shape), ()))
        return "z + other"


class Skip(Operator):
    """Together with what the main operator gave."""
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
        # What a sigmoid or a clip has pressed together is pulled apart again, and its errors with it.
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
        if self.kind == "sum":  # of what a norm has pinned, it is about a constant
            return whole and not values.is_linear and before not in ("squash", "constant") and "norm" not in chain.kinds
        if self.kind == "logsumexp":
            return whole and not (values.is_bounded() and values.high <= 1)
        # Of many values one is always at a limit.
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

# --- The main operators ---


def sizes_of(names, full, small):
    return {"full": dict(zip(names, full)), "small": dict(zip(names, small))}


def linear(chance):
    full = chance.choice([(1024, 8192, 8192), (2048, 8192, 4096), (4096, 4096, 4096), (8192, 2048, 4096),
                          (16384, 1024, 2048), (512, 8192, 16384)])
    small = chance.choice([(64, 512, 512), (128, 384, 640), (96, 512, 768), (64, 1024, 512)])
    values = Values(["B", "N"])
    chain = Chain(sizes_of("BKN", full, small), values, list(values.shape), ["Linear"], [], [], ["matmul"],
                  [("x", ["B", "K"], ())], [], [(2, "B*N*K")], "K", "2*B*N*K / 3")
    chain.params.append(("weight", ["N", "K"], ("distribution = \"uniform\"", "scale = \"1/sqrt(K)\"")))
    chain.call = "torch.linear(x, weight{bias})"
    chain.without_bias = "Matmul"
    chain.bias_of = ("N", "1/sqrt(K)")
    return chain


def padded(dim, change):
    return dim if change == 0 else f"{dim} {'+' if change > 0 else '-'} {abs(change)}"


def convolution(chance, rank, full, small, forms):
    """forms: (kernel, stride, padding, groups)."""
    kernel, stride, padding, groups = chance.choice(forms)
    axes = ["D", "H", "W"][3 - rank:]
    spatial = [padded(axis, 2 * padding - kernel + 1) if stride == 1 else f"{axis}/{stride}" for axis in axes]
    values = Values(["B", "O"] + spatial)
    channels = "C" if groups == 1 else f"C/{groups}"
    taps = kernel**rank
    fan = f"{taps}*{channels}" if taps > 1 else channels
    name = f"Conv{rank}d" + {1: f" {'x'.join(['1'] * rank)}"}.get(kernel, "")
    if groups > 1:
        name += f" in {groups} groups"
    chain = Chain(sizes_of(["B", "C", "O"] + axes, full, small), values, list(values.shape), [name], [], [],
                  ["conv"], [("x", ["B", "C"] + axes, ())], [],
                  [(2 * taps, product(["B", "O", channels] + spatial))], fan,
                  f"2*{product(['B', 'O', channels] + spatial)} / 3")
    chain.params.append(("weight", ["O", channels] + [kernel] * rank,
                         ("distribution = \"uniform\"", f"scale = \"1/sqrt({fan})\"")))
    lists = [[stride] * rank, [padding] * rank, [1] * rank]
    plain = groups == 1 and stride == 1
    tail = "" if plain and padding == 0 else ", " + ", ".join(str(one) for one in lists[:2 if groups == 1 else 3])
    tail += f", {groups}" if groups > 1 else ""
    chain.call = f"torch.conv{rank}d(x, weight{{bias}}{tail})"
    chain.needs_bias_argument = bool(tail)
    chain.bias_of = ("O", f"1/sqrt({fan})")
    return chain


def transposed(chance, rank, full, small, forms):
    """forms: (kernel, stride, padding, output padding)."""
    kernel, stride, padding, more = chance.choice(forms)
    axes = ["D", "H", "W"][3 - rank:]
    change = kernel - 2 * padding + more - stride
    spatial = [padded(axis if stride == 1 else f"{stride}*{axis}", change) for axis in axes]
    values = Values(["B", "O"] + spatial, spread=0.3)
    taps = kernel**rank
    chain = Chain(sizes_of(["B", "C", "O"] + axes, full, small), values, list(values.shape),
                  [f"ConvTranspose{rank}d"], [], [], ["conv_transpose"], [("x", ["B", "C"] + axes, ())], [],
                  [(2 * taps, product(["B", "O", "C"] + axes))], f"{taps}*C",
                  f"2*{product(['B', 'O', 'C'] + axes)} / 3")
    chain.params.append(("weight", ["C", "O"] + [kernel] * rank,
                         ("distribution = \"uniform\"", f"scale = \"1/sqrt({taps}*O)\"")))
    lists = [[stride] * rank, [padding] * rank, [more] * rank]
    tail = "" if stride == 1 and padding == 0 else ", " + ", ".join(str(one) for one in lists[:3 if more else 2])
    chain.call = f"torch.conv_transpose{rank}d(x, weight{{bias}}{tail})"
    chain.needs_bias_argument = bool(tail)
    chain.bias_of = ("O", f"1/sqrt({taps}*O)")
    return chain


def conv2d(chance):
    full = chance.choice([(64, 32, 64, 128, 128), (32, 64, 128, 128, 128), (128, 16, 64, 96, 96),
                          (128, 64, 64, 64, 64), (16, 32, 64, 256, 256)])
    small = chance.choice([(4, 16, 32, 32, 32), (2, 32, 32, 36, 36), (4, 16, 64, 24, 24)])
    return convolution(chance, 2, full, small, [(3, 1, 0, 1), (3, 1, 1, 1), (5, 1, 2, 1), (4, 2, 1, 1),
                                                (1, 1, 0, 1), (3, 1, 1, 4)])


def conv3d(chance):
    full = chance.choice([(16, 16, 32, 16, 64, 64), (32, 8, 32, 16, 48, 48), (16, 32, 64, 12, 48, 48)])
    small = chance.choice([(1, 8, 32, 8, 20, 20), (2, 8, 16, 8, 16, 16), (2, 4, 32, 12, 12, 12)])
    return convolution(chance, 3, full, small, [(3, 1, 0, 1), (3, 1, 1, 1), (4, 2, 1, 1)])


def transposed2d(chance):
    full = chance.choice([(32, 64, 64, 64, 64), (16, 64, 128, 64, 64), (64, 32, 64, 64, 64)])
    small = chance.choice([(2, 16, 32, 16, 16), (1, 32, 32, 20, 20), (4, 16, 16, 16, 16)])
    return transposed(chance, 2, full, small, [(4, 2, 1, 0), (3, 2, 1, 1), (3, 1, 1, 0), (2, 2, 0, 0)])


def transposed3d(chance):
    full = chance.choice([(32, 16, 32, 16, 32, 32), (16, 32, 32, 16, 32, 32), (16, 32, 64, 16, 32, 32)])
    small = chance.choice([(1, 8, 16, 6, 12, 12), (2, 8, 16, 4, 12, 12), (1, 16, 16, 6, 10, 10)])
    return transposed(chance, 3, full, small, [(3, 2, 1, 1), (4, 2, 1, 0), (3, 1, 1, 0), (2, 2, 0, 0)])


MAINS = [(29, linear), (18, conv2d), (10, conv3d), (9, transposed2d), (14, transposed3d)]  # about as in level 2

# --- A chain ---


def kind_before(chain):
    return chain.kinds[-1] if chain.kinds else "main"


def add_operator(chain, operator):
    values = chain.values
    chain.element_flops(operator.flops)
    chain.lines.append(operator.apply(chain, values))
    chain.names.append(operator.name)
    chain.kinds.append({"bias": "bias", "multiply": "multiply"}.get(operator.kind, operator.group or operator.kind))
    if operator.family and operator.family not in chain.families:
        chain.families.append(operator.family)


def draw_chain(chance):
    """None where the draw leads nowhere."""
    chain = chance.weighted(MAINS)(chance)
    wanted = 2 + chance.below(4)
    groups, names = {}, set()
    while len(chain.kinds) < wanted:
        most = {"rectifier": 2, "move": 2}
        fitting = [(weight, one) for weight, one in OPERATORS
                   if groups.get(one.group, 0) < most.get(one.group, 1) and one.name not in names
                   and one.allowed(chain, chain.values, kind_before(chain))]
        if not fitting:
            return None
        operator = chance.weighted(fitting)
        groups[operator.group] = groups.get(operator.group, 0) + 1
        names.add(operator.name)
        add_operator(chain, operator)
    if chain.kinds[0] == "bias" or chain.lines[0].startswith(("torch.batch_norm", "torch.instance_norm")):
        chain.has_bias = False
        chain.names[0] = getattr(chain, "without_bias", chain.names[0])
    is_plain = set(chain.kinds) <= {"constant", "bias", "multiply", "residual"}
    return None if is_plain or chain.kinds[-1] == "constant" and wanted < 3 else chain


# --- As a sequence of operators, read off the text ---


def operators_of(reference):
    """["conv2d", "relu", "add"]: + and - are one thing, so are * and /, and the names of a clamp."""
    same = {"hardtanh": "clamp", "relu_": "relu", "avg_pool": "mean"}
    found = []

    def is_product_with_own(node, function):
        """x * f(x), either way round."""
        for a, b in ((node.left, node.right), (node.right, node.left)):
            if isinstance(b, ast.Call) and b.func.attr == function and ast.dump(b.args[0]) == ast.dump(a):
                return a
        return None

    def visit(node):
        if isinstance(node, ast.BinOp):
            own = is_product_with_own(node, "sigmoid") if isinstance(node.op, ast.Mult) else None
            if own is not None:
                visit(own)
                found.append("silu")
                return
            visit(node.left)
            visit(node.right)
            found.append({ast.Add: "add", ast.Sub: "add", ast.Mult: "mul", ast.Div: "mul"}[type(node.op)])
        elif isinstance(node, ast.Call):
            for argument in node.args:
                visit(argument)
            if not isinstance(node.func.value, ast.Name) or node.func.value.id != "torch":
                visit(node.func.value)  # y.view(...): another view of the same operator's result
            elif node.func.attr not in ("flatten", "zeros_like"):
                name = re.sub(r"(pool|norm)\dd$", r"\1", node.func.attr)
                found.append(same.get(name, name))
        elif isinstance(node, ast.AST) and not isinstance(node, (ast.Name, ast.Constant)):
            for child in ast.iter_child_nodes(node):
                visit(child)

    for statement in ast.parse(reference).body[-1].body:
        visit(statement.value)
    text = " ".join(found)
    for written, short in (("softplus tanh mul", "mish"), ("add mul clamp mul", "hardswish")):
        text = text.replace(written, short)
    return text.split()


# --- The file ---


def toml_list(items):
    return "[" + ", ".join(str(item) if isinstance(item, int) else f'"{item}"' for item in items) + "]"


def tensor(table, name, shape, keys):
    return "\n".join([f"[[{table}]]", f'name = "{name}"', f"shape = {toml_list(shape)}", *keys]) + "\n"


def cost(chain, tensors):
    per_elements = {}
    for count, elements in chain.flops:
        per_elements[elements] = per_elements.get(elements, 0) + count
    flops = " + ".join(f"{count}*{elements}" if count > 1 else elements for elements, count in per_elements.items())
    number_of = [product(shape) for shape in tensors]
    total = " + ".join(f"{number_of.count(one)}*{one}" if number_of.count(one) > 1 else one
                       for one in dict.fromkeys(number_of))
    why = ("# Recursion in the manner of Strassen needs fewer operations than the usual count; a third is below all "
           "of\n# that." if chain.families[0] == "matmul" else
           "# However it is transformed, a convolution keeps a multiplication for every output, and every pair of\n"
           "# channels; Strassen's recursion over the channels saves less than two thirds of those.")
    return (f'[cost]\nflops = "{flops}"\nbytes = "4*({total})"\n{why}\n'
            f'min_flops = "{chain.min_flops}"\nmin_bytes = "4*({total})"\n')


def reduction(chain):
    """What is left of the main operator's errors; at least 1. An image's row is of one channel, whose values a norm,
    a clip or a neighbour's bias may have made half as large as the sums behind them."""
    smallest = min(value_of(chain.reduction, symbols) for symbols in chain.sizes.values())
    calm = fractions.Fraction(chain.values.calm) / (4 if len(chain.main_shape) > 2 else 1)
    if calm >= smallest:
        return "1"
    factor = "" if calm == 1 else f"/{calm}" if calm > 1 else f"*{1 / calm}"
    return f'"{chain.reduction}{factor}"'


# What admission found (kevin problems --suite test --admit --precision ...).
FLAGS = {
    22: {"inadmissible-in-16-bits": "Sums and means of so many values round their differences away in 16 bits."},
}


def file_text(number, chain):
    params = [param for param in chain.params if param[0] == "weight"]
    if chain.has_bias:
        size, scale = chain.bias_of
        params.append(("bias", [size], ('distribution = "uniform"', f'scale = "{scale}"')))
    params += [param for param in chain.params if param[0] != "weight"]
    inputs = [(name, shape, keys) for name, shape, keys in chain.inputs]
    inputs += [(name, shape, ('role = "param"',) + keys) for name, shape, keys in params]
    families = chain.families if len(chain.families) > 1 else chain.families + ["elementwise"]
    argument = ", bias" if chain.has_bias else ", None" if getattr(chain, "needs_bias_argument", False) else ""
    lines = [f"def forward({', '.join(name for name, _, _ in inputs)}):",
             f"    y = {chain.call.format(bias=argument)}"]
    # The first operator takes y; what the later ones call y is that too.
    first = re.sub(r"\bz\b", "y", chain.lines[0])
    lines += [f"    {'return' if i == len(chain.lines) - 1 else 'z ='} {first if i == 0 else line}"
              for i, line in enumerate(chain.lines)]
    families_text = ", ".join(f'"{family}"' for family in families)
    parts = [f'id = "chains/{number}"\nname = "{" + ".join(chain.names)}"\nfamilies = [{families_text}]\n',
             "reference = '''\n" + "\n".join(lines) + "\n'''\n"]
    if flags := FLAGS.get(number):
        parts.append("[flags]\n" + "".join(f'{flag} = "{why}"\n' for flag, why in flags.items()))
    for size, symbols in chain.sizes.items():
        parts.append(f"[sizes.{size}]\n" + "".join(f"{symbol} = {value}\n" for symbol, value in symbols.items()))
    parts += [tensor("inputs", *one) for one in inputs]
    parts.append(tensor("outputs", "out", chain.values.shape, ()))
    parts.append(cost(chain, [shape for _, shape, _ in inputs] + [chain.values.shape]))
    parts.append(f"[check]\nreduction = {reduction(chain)}\n")
    return "\n".join(parts)


def file_name(number, chain):
    words = re.sub(r"[^a-z0-9]+", "_", " ".join(chain.names).lower()).strip("_")
    return f"{number:03d}_{words}.toml"


def level2():
    """{sequence of operators: id}"""
    files = [tomllib.loads(path.read_text()) for path in sorted((PROBLEMS / "level2").glob("*.toml"))]
    return {" ".join(operators_of(file["reference"])): file["id"] for file in files}


def chains():
    """{file name: text}"""
    files, taken, attempt = {}, set(level2()), 0
    while len(files) < COUNT:
        attempt += 1
        chain = draw_chain(Chance(f"{SEED} {attempt}"))
        if chain is None:
            continue
        number = len(files) + 1
        text = file_text(number, chain)
        sequence = " ".join(operators_of(tomllib.loads(text)["reference"]))
        if sequence in taken:
            continue
        taken.add(sequence)
        files[file_name(number, chain)] = text
    return files


def repeats(folder):
    """What is wrong with the sequences of the files as they lie."""
    known, wrong = level2(), []
    for path in sorted(folder.glob("*.toml")):
        file = tomllib.loads(path.read_text())
        sequence = " ".join(operators_of(file["reference"]))
        if sequence in known:
            wrong.append(f"{path.name}: {sequence} is {known[sequence]}")
        known[sequence] = file["id"]
    return wrong


def main():
    folder, is_check, wanted = PROBLEMS / "chains", "--check" in sys.argv, chains()
    folder.mkdir(exist_ok=True)
    there = {path.name: path for path in folder.glob("*.toml")}
    differs = 0
    for name in sorted(set(wanted) | set(there)):
        if name in wanted and name in there and there[name].read_text() == wanted[name]:
            continue
        differs += 1
        what = "differs" if is_check else "written" if name in wanted else "removed"
        print(f"{name}: {what}")
        if is_check:
            continue
        if name in wanted:
            (folder / name).write_text(wanted[name])
        else:
            there[name].unlink()
    wrong = repeats(folder)
    print("".join(line + "\n" for line in wrong), end="")
    return 1 if wrong or differs and is_check else 0


if __name__ == "__main__":
    sys.exit(main())
