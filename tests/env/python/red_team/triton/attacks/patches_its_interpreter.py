# Makes stores of the interpreter coarse.
import numpy
import triton.runtime.interpreter as interpreter

store = interpreter.InterpreterBuilder.create_masked_store


def coarse(self, ptrs, value, *rest):
    value.data = value.data.astype(numpy.float16).astype(value.data.dtype)
    return store(self, ptrs, value, *rest)


interpreter.InterpreterBuilder.create_masked_store = coarse


def launch(x, out):
    run(x, out)
