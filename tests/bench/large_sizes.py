#!/usr/bin/env python3
"""The search policy's first texts in CUDA at odd sizes above 2^31 elements: one problem for each kind of stage.

    large_sizes.py FOLDER               writes the problems as FOLDER/large/*.toml
    large_sizes.py FOLDER --bench BENCH_SEARCH [--device cuda:0] [--precision fp32] [--only relu,argmax_flat]
                                        writes them, then has each text compared with eager in one verified call

Sizes are primes where possible, so that no vector access divides a row. A problem needs up to some 100 GB of the GPU's
memory, so that they are judged one at a time. Exit code 1 where one was not correct."""

import argparse
import os
import pathlib
import shlex
import subprocess
import sys

PRIME = 46349          # PRIME * PRIME = 2^31 + 746,153
# name: statement, symbols, inputs (name, shape, options), output's shape, terms of a sum.
SQUARE = {"N": PRIME}
X = [("x", ["N", "N"], "")]
PROBLEMS = {
    "relu": ("torch.relu(x) * 1.5", SQUARE, X, ["N", "N"], 1),
    "add_rows": ("x.t() + b", SQUARE, X + [("b", ["N"], "")], ["N", "N"], 1),
    "pad_cat": ("torch.cat([x, x.flip([1]), torch.constant_pad_nd(x, [3, 4], 1.0)], 1)", {"B": 30011, "N": 23873},
                [("x", ["B", "N"], "")], ["B", "3*N + 7"], 1),
    "triangle": ("torch.triu(x, 2)", SQUARE, X, ["N", "N"], 1),
    "embedding": ("torch.embedding(w, i)", {"B": 4187, "S": 1009, "V": 1013, "D": 521},
                  [("w", ["V", "D"], ""), ("i", ["B", "S"], 'dtype = "int64", distribution = "uniform01", scale = "V"')],
                  ["B", "S", "D"], 1),
    "rows_by_index": ("torch.index_select(x, 0, i)", SQUARE,
                      X + [("i", ["N"], 'dtype = "int64", distribution = "uniform01", scale = "N"')], ["N", "N"], 1),
    "upsample": ("torch.upsample_nearest2d(x, [3*x.size(2), 3*x.size(3)])", {"B": 5, "C": 7, "H": 2617},
                 [("x", ["B", "C", "H", "H"], "")], ["B", "C", "3*H", "3*H"], 1),
    "sum_rows": ("torch.sum(x, 1)", SQUARE, X, ["N"], "N"),
    "sum_columns": ("torch.sum(x, 0)", SQUARE, X, ["N"], "N"),
    "mean_of_all": ("torch.mean(x + 1.0)", SQUARE, X, [], "N*N"),
    "max_of_all": ("torch.amax(x)", SQUARE, X, [], 1),
    "argmax_flat": ("torch.argmax(x, 1)", {"B": 1, "N": PRIME * PRIME}, [("x", ["B", "N"], "")], ["B"], 1),
    "argmin_columns": ("torch.argmin(x, 0)", SQUARE, X, ["N"], 1),
    "sums_of_pairs": ("torch.sum(x, 1)", {"B": 2**31 + 11, "N": 2}, [("x", ["B", "N"], "")], ["B"], 2),
    "variance": ("torch.var(x, [1])", SQUARE, X, ["N"], "N"),
    "logsumexp": ("torch.logsumexp(x, [1])", SQUARE, X, ["N"], "N"),
    "softmax": ("torch.softmax(x, 1)", SQUARE, X, ["N", "N"], "N"),
    "layer_norm": ("torch.layer_norm(x, [x.size(1)])", SQUARE, X, ["N", "N"], "N"),
    "batch_norm": ("torch.batch_norm(x, None, None, None, None, True, 0.1, 1e-5, False)", {"B": 7, "C": 11, "H": 5303},
                   [("x", ["B", "C", "H", "H"], "")], ["B", "C", "H", "H"], "B*H*H"),
    "max_pool": ("torch.max_pool2d(x, [3, 3], [2, 2], [1, 1])", {"B": 7, "C": 11, "H": 5303},
                 [("x", ["B", "C", "H", "H"], "")], ["B", "C", "(H - 1)/2 + 1", "(H - 1)/2 + 1"], 1),
    "cumsum_rows": ("torch.cumsum(x, 1)", SQUARE, X, ["N", "N"], "N"),
    "cumsum_columns": ("torch.cumsum(x, 0)", SQUARE, X, ["N", "N"], "N"),
    "cumsum_long": ("torch.cumsum(x, 1)", {"B": 1, "N": PRIME * PRIME}, [("x", ["B", "N"], "")], ["B", "N"], "N"),
    "matmul": ("torch.matmul(a, b)", {"N": PRIME, "K": 61}, [("a", ["N", "K"], ""), ("b", ["K", "N"], "")], ["N", "N"], "K"),
    "matmul_long_sum": ("torch.matmul(a, x)", {"N": PRIME, "M": 3}, [("a", ["M", "N"], ""), ("x", ["N", "N"], "")], ["M", "N"], "N"),
    "batches": ("torch.bmm(a, b)", {"B": 8209, "M": 521, "K": 67, "N": 503},
                [("a", ["B", "M", "K"], ""), ("b", ["B", "K", "N"], "")], ["B", "M", "N"], "K"),
    "conv2d": ("torch.conv2d(x, w)", {"B": 31, "C": 3, "O": 67, "H": 1031},
               [("x", ["B", "C", "H", "H"], ""), ("w", ["O", "C", 3, 3], "")], ["B", "O", "H - 2", "H - 2"], "9*C"),
    "conv_transpose2d": ("torch.conv_transpose2d(x, w, None, [2, 2])", {"B": 31, "C": 3, "O": 67, "H": 521},
                         [("x", ["B", "C", "H", "H"], ""), ("w", ["C", "O", 3, 3], "")], ["B", "O", "2*H + 1", "2*H + 1"], "4*C"),
    "depthwise": ("torch.conv2d(x, w, None, [1, 1], [1, 1], [1, 1], x.size(1))", {"B": 7, "C": 11, "H": 5303},
                  [("x", ["B", "C", "H", "H"], ""), ("w", ["C", 1, 3, 3], "")], ["B", "C", "H", "H"], 9),
    "attention": ("torch.scaled_dot_product_attention(q, q, q)", {"B": 253999, "S": 67, "D": 127},
                  [("q", ["B", 1, "S", "D"], "scale = 0.25")], ["B", 1, "S", "D"], "S"),
    "mse": ("torch.mse_loss(x, y)", SQUARE, X + [("y", ["N", "N"], "")], [], "N*N"),
    "cross_entropy": ("torch.cross_entropy_loss(x, t)", SQUARE,
                      X + [("t", ["N"], 'dtype = "int64", distribution = "uniform01", scale = "N"')], [], "N"),
    "recurrence": ("", {"T": 509, "B": 8209, "H": 521}, [("x", ["T", "B", "H"], ""), ("w", ["H"], 'distribution = "uniform"')], ["T", "B", "H"], "T"),
}
LOOP = """    h = torch.zeros_like(x[0])
    states: List[Tensor] = []
    for t in range(x.size(0)):
        h = torch.tanh(x[t] + h * w)
        states.append(h)
    return torch.stack(states)"""


def text_of(number, name):
    statement, symbols, inputs, output, terms = PROBLEMS[name]
    body = LOOP if name == "recurrence" else f"    return {statement}"
    large = "\n".join(f"{symbol} = {value}" for symbol, value in symbols.items())
    small = "\n".join(f"{symbol} = {value if value < 20 else 37}" for symbol, value in symbols.items())
    shape = lambda dimensions: "[" + ", ".join(f'"{d}"' if isinstance(d, str) else str(d) for d in dimensions) + "]"
    rows = ",\n".join(f'  {{name = "{n}", shape = {shape(s)}{", " + extra if extra else ""}}}' for n, s, extra in inputs)
    terms = f'"{terms}"' if isinstance(terms, str) else terms
    extreme = ""
    if name.startswith("arg"):
        extreme = f"extreme_dim = {0 if 'columns' in name else 1}\nextreme_is_max = {'true' if 'max' in name else 'false'}\n"
    dtype = ', dtype = "int64"' if name.startswith("arg") else ""
    return f"""id = "large/{number}"
name = "{name}"
families = ["large"]
inputs = [
{rows},
]
outputs = [{{name = "out", shape = {shape(output)}{dtype}}}]
reference = '''
def forward({", ".join(n for n, _, _ in inputs)}):
{body}
'''

[flags]
needs-int64-index = "Made for that."

[sizes.full]
{large}

[sizes.small]
{small}

[cost]
flops = 1
bytes = 1
min_flops = 0
min_bytes = 0

[check]
reduction = {terms}
{extreme}"""


def write(folder, names):
    path = pathlib.Path(folder) / "large"
    path.mkdir(parents=True, exist_ok=True)
    for old in path.glob("*.toml"):
        old.unlink()
    for number, name in enumerate(PROBLEMS, 1):
        if name in names:
            (path / f"{number:03}_{name}.toml").write_text(text_of(number, name))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--bench", help='the program, with what starts it ("kevin --exec bench_search")')
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--size", default="full")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(PROBLEMS)
    if unknown := set(names) - set(PROBLEMS):
        parser.error(f"--only: no problem {', '.join(sorted(unknown))}; there are {', '.join(PROBLEMS)}")
    write(options.folder, names)
    if not options.bench:
        return 0
    command = [*shlex.split(options.bench), "--suite", "large", "--size", options.size, "--device", options.device,
               "--precision", options.precision, "--parallel", "1"]
    correct = 0
    bench = subprocess.Popen(command, env={**os.environ, "KEVIN_PROBLEMS": options.folder}, stdout=subprocess.PIPE, text=True)
    for line in bench.stdout:  # as they come: a run that is stopped has shown what it judged
        print(line, end="", flush=True)
        correct += line.startswith("large/") and " measured " in line
    bench.wait()
    print(f"{correct} of {len(names)} correct")
    return 0 if correct == len(names) else 1


if __name__ == "__main__":
    sys.exit(main())
