#!/usr/bin/env python3
"""Writes env/problems/chains/*.toml: 80 test problems in the style of level 2, a main operator and 2 to 5 others. No
training set contains them. The output is the same on every machine.

    env/problems/generate/chains.py [--check]     # --check: report differences and repetitions, write nothing

Chains are random. A chain is rejected if its sequence of operators, read from the reference text, occurs in level 2 or
in an earlier chain, or if an operator has no effect or loses the signal: a ReLU of non-negative values, a scale in
front of a norm, a sum of softmax outputs. `Operator.allowed` decides this from estimated value ranges
(chain_operators.py).
"""

import ast
import fractions
import hashlib
import pathlib
import re
import sys
import tomllib

sys.dont_write_bytecode = True  # this folder is data
from chain_operators import OPERATORS, Chain, Values, product, value_of

PROBLEMS = pathlib.Path(__file__).resolve().parent.parent
SEED = "kevin chains 1"
COUNT = 80

# --- Random choices from hashes: independent of the version of any generator ---


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
        """Chooses from [(weight, option)]."""
        at = self.below(sum(weight for weight, _ in options))
        for weight, option in options:
            at -= weight
            if at < 0:
                return option


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


MAINS = [(29, linear), (18, conv2d), (10, conv3d), (9, transposed2d), (14, transposed3d)]  # frequencies as in level 2

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
    """None if no operator fits."""
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


# --- The sequence of operators of a reference text ---


def operators_of(reference):
    """["conv2d", "relu", "add"]: + and - count as the same operator, as do * and /, and the names of a clamp."""
    same = {"hardtanh": "clamp", "relu_": "relu", "avg_pool": "mean"}
    found = []

    def is_product_with_own(node, function):
        """x of x * f(x) or f(x) * x; else None."""
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
                visit(node.func.value)  # y.view(...) is no operator
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
    """The `reduction` of the check: that of the main operator, less the shrinking of its errors; at least 1. A row of
    an image has one channel; a norm, a clip or a bias may have halved its values against the sums."""
    smallest = min(value_of(chain.reduction, symbols) for symbols in chain.sizes.values())
    calm = fractions.Fraction(chain.values.calm) / (4 if len(chain.main_shape) > 2 else 1)
    if calm >= smallest:
        return "1"
    factor = "" if calm == 1 else f"/{calm}" if calm > 1 else f"*{1 / calm}"
    return f'"{chain.reduction}{factor}"'


# Results of admission (kevin problems --suite test --admit --precision ...).
FLAGS = {
    22: {"inadmissible-in-16-bits": "Sums and means of so many values round their differences away in 16 bits."},
}

# Scales of checks, where values after the last operator say little about the size of the terms before it.
SCALES = {
    41: ("# Of what the norm adds up: its bias, and its weight by the size of a sum before, through the factor of the norm, which is large\n"
         "# where relu leaves little of a row.",
         """def scale(x, weight, bias, norm_weight, norm_bias):
    z = torch.relu(torch.conv2d(x, weight, bias, [2, 2], [1, 1]))
    size = torch.sqrt(torch.mean(x * x, [1, 2, 3])).view(-1, 1, 1, 1)
    factor = size / torch.sqrt(torch.var(z, [3], False, True) + 1e-5)
    return torch.abs(norm_weight) * factor + torch.abs(norm_bias)
"""),
    47: ("# Of what the norm adds up: values of variance 1 by its weight, and its bias. Where the sigmoid saturates, a whole row is one\n"
         "# value, in which both may cancel.",
         """def scale(x, weight, bias, factor, shift, norm_weight, norm_bias):
    sums = (torch.abs(norm_weight) + torch.abs(norm_bias)).view(-1, 1, 1)
    return sums.expand([x.size(0), -1, x.size(2) // 2, x.size(3) // 2])
"""),
    57: ("# Of the normalised values before the ReLU: rows of which it leaves little have small values only.",
         """def scale(x, weight, bias, norm_weight, norm_bias):
    y = torch.conv3d(x, weight, bias)
    z = torch.group_norm(y, 8, norm_weight, norm_bias, 1e-5)
    z = torch.abs(z - norm_bias.view([-1, 1, 1, 1])) + torch.abs(norm_bias.view([-1, 1, 1, 1]))
    return torch.avg_pool3d(z, [2, 2, 2])
"""),
    59: ("# An error of a logit is one of the result's digits. Logits are sums of terms as large as x times a weight.",
         """def scale(x, weight, bias, factor):
    y = torch.softmax(torch.leaky_relu(torch.linear(x, weight, bias), 0.1) * factor, 1)
    rows = torch.sqrt(torch.mean(y * y, [1], True))
    return torch.maximum(y, rows) * torch.clamp(torch.sqrt(torch.mean(x * x, [1], True)), min=1.0)
"""),
}


def check(number, chain):
    text = f"[check]\nreduction = {reduction(chain)}\n"
    if number in SCALES:
        why, scale = SCALES[number]
        text += f"{why}\nscale = '''\n{scale}'''\n"
    return text


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
    # The first operator reads y; a skip connection refers to the same y.
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
    parts.append(check(number, chain))
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
    """Errors: sequences of operators that occur twice among the files and level 2."""
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
