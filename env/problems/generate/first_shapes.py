#!/usr/bin/env python3
"""Checks the sizes of KernelBench's first shapes against KernelBench's own files.

    env/problems/generate/first_shapes.py --from CHECKOUT --first CHECKOUT

The first CHECKOUT is a clone of KernelBench at commit 423217d, the second one at 6500bbc, its branch v0; they are only read.
Needs a Python (3.11 or newer) with torch 2.11, numpy and einops. Nothing is computed: tensors have shapes alone.

A size `v0` has the input shapes of the second one. Where `first_shapes` names a size, its shapes and the arguments of
`Model` and of `forward` are equal in both. Prints the problems for which that does not hold, then how many have which; exit
code 0: it holds for all; 1: not for all; 2: invalid input; 3: torch, numpy or einops is missing.
"""

import argparse
import ast
import collections
import importlib.util
import inspect
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import parity


class File:
    """KernelBench's file of a problem in a checkout."""

    def __init__(self, checkout, problem):
        level, position = problem.split("/")
        path = next((checkout / "KernelBench" / level).glob(f"{position}_*.py"), None)
        if path is None:
            raise parity.Mismatch(f"not in {checkout}")
        with parity.torch.device("meta"):
            module = parity.execute(ast.parse(path.read_text()), path, {})
            self.shapes = parity.tensor_shapes(module.get_inputs())
            self.arguments = module.get_init_inputs(), str(inspect.signature(module.Model.forward))


def check(ours, checkout, first):
    """What a problem has: "v0", "first_shapes" or "neither"."""
    same = ours.file.get("model", {}).get("first_shapes")
    size = same or ("v0" if "v0" in ours.file["sizes"] else None)
    if size is None:
        return "neither"
    theirs = File(first, ours.id)
    own = ours.shapes(ours.inputs, ours.file["sizes"][size])
    if theirs.shapes != own[: len(theirs.shapes)]:
        raise parity.Mismatch(f"{size}: inputs are {theirs.shapes} there, {own} here")
    if not same:
        return "v0"
    now = File(checkout, ours.id)
    if (theirs.shapes, theirs.arguments) != (now.shapes, now.arguments):
        raise parity.Mismatch(f"{theirs.shapes} {theirs.arguments} became {now.shapes} {now.arguments}")
    return "first_shapes"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, field in (("--from", "checkout"), ("--first", "first")):
        parser.add_argument(name, dest=field, required=True, type=pathlib.Path, metavar="CHECKOUT")
    options = parser.parse_args()
    missing = [name for name in ("torch", "numpy", "einops") if importlib.util.find_spec(name) is None]
    if missing:
        print(f"first_shapes.py: {sys.executable} cannot import {', '.join(missing)}\n"
              f"next: {sys.executable} -m pip install torch==2.11.0 numpy einops, or use a Python that has them",
              file=sys.stderr)
        return 3
    for checkout in (options.checkout, options.first):
        if not (checkout / "KernelBench/level1").is_dir():
            print(f"{checkout / 'KernelBench/level1'}: no such folder\nnext: clone "
                  "github.com/ScalingIntelligence/KernelBench twice, one with --branch v0", file=sys.stderr)
            return 2
    counts = collections.Counter()
    for path in sorted(parity.PROBLEMS.glob("level[123]/*.toml")):
        ours = parity.OurProblem(path)
        try:
            counts[check(ours, options.checkout, options.first)] += 1
        except parity.Mismatch as mismatch:
            counts["failed"] += 1
            print(f"FAIL {ours.id:<11} {ours.name[:40]:<40} {mismatch}")
    print(", ".join(f"{count} {name}" for name, count in sorted(counts.items())))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
