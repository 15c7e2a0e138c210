#!/usr/bin/env python3
"""Which kernels eager runs for a problem, by torch's profiler: the algorithm that the search policy's contractions are compared with.

    eager_kernels.py level1/1-18 level1/50-87 [--size full] [--precision fp32]

For each problem a line of JSON: its id, the time of one call in microseconds (the median of five, after two that warm up), and its
kernels with their share of the device's time, the largest first. Weights and inputs are random; which algorithm cuDNN takes depends
on shapes alone. TF32 is off. Needs a Python with torch and a GPU."""

import argparse
import ast
import collections
import json
import math
import pathlib
import re
import statistics
import tomllib

import torch

PROBLEMS = pathlib.Path(__file__).resolve().parents[2] / "env" / "problems"
LEAST_SHARE = 0.01


def problem_files(names):
    for name in names:
        level, _, numbers = name.partition("/")
        first, _, last = numbers.partition("-")
        for number in range(int(first), int(last or first) + 1):
            yield from sorted((PROBLEMS / level).glob(f"{number:03}_*.toml"))


def value(expression, symbols):
    """A dimension: a number, or a text like "(H - 7)/4 + 1"."""
    if isinstance(expression, int):
        return expression
    tree = ast.parse(expression.replace("/", "//"), mode="eval")
    return eval(compile(tree, "shape", "eval"), {"__builtins__": {}, "sqrt": math.isqrt}, symbols)


def inputs(problem, symbols, dtype):
    for tensor in problem["inputs"]:
        shape = [value(dimension, symbols) for dimension in tensor["shape"]]
        scale = 1 / math.sqrt(max(1, math.prod(shape[1:]))) if tensor.get("role") == "param" else 1
        yield torch.empty(shape, device="cuda", dtype=dtype).normal_(0, scale)


def measured(call):
    for _ in range(2):
        call()
    times_us = []
    for _ in range(5):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times_us.append(start.elapsed_time(end) * 1000)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        call()
        torch.cuda.synchronize()
    kernels = collections.Counter()
    for event in profiler.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            kernels[re.sub(r"^void |<.*|\(.*", "", event.name.replace("(anonymous namespace)::", ""))] += event.device_time
    all_us = sum(kernels.values())
    return statistics.median(times_us), {name: round(us / all_us, 3) for name, us in kernels.most_common()
                                         if us >= LEAST_SHARE * all_us}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="+")
    parser.add_argument("--size", default="full")
    parser.add_argument("--precision", choices=("fp32", "fp16", "bf16"), default="fp32")
    options = parser.parse_args()
    dtype = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[options.precision]
    torch._C._set_graph_executor_optimize(False)  # else elementwise operations are fused after two calls
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    for file in problem_files(options.problems):
        problem = tomllib.loads(file.read_text())
        line = {"problem": problem["id"], "name": problem["name"], "precision": options.precision}
        try:
            tensors = list(inputs(problem, problem["sizes"][options.size], dtype))
            forward = torch.jit.CompilationUnit(problem["reference"]).forward
            with torch.no_grad():
                line["eager_us"], line["kernels"] = measured(lambda: forward(*tensors))
        except (RuntimeError, KeyError, SyntaxError, NameError, torch.cuda.OutOfMemoryError) as error:
            line["error"] = str(error).strip().splitlines()[-1][:200]
        tensors = None
        torch.cuda.empty_cache()
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
