# Makes stores of the interpreter coarse.
import numpy

import torch
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(out + at, tl.maximum(value, 0.0), mask=at < n)


def run(x, out):
    relu_kernel[(triton.cdiv(x.numel(), 65536),)](x, out, x.numel(), BLOCK=65536)



import triton.runtime.interpreter as interpreter

store = interpreter.InterpreterBuilder.create_masked_store


def coarse(self, ptrs, value, *rest):
    value.data = value.data.astype(numpy.float16).astype(value.data.dtype)
    return store(self, ptrs, value, *rest)


interpreter.InterpreterBuilder.create_masked_store = coarse


def launch(x, out):
    run(x, out)
