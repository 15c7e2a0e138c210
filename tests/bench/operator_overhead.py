"""What a call through an exported operator and drop-in costs beside its kernel: the kernel is replaced by one that does
nothing. Takes a drop-in that `kevin optimize` wrote for a module with tensors as its only arguments:

    python operator_overhead.py NAME.py

Least times of many short slices, which a loaded machine interrupts less often than long ones."""

import ctypes
import glob
import importlib.util
import os
import sys
import time
import warnings

import torch

CALLS, SLICES = 100, 400


def load(path):
    name = os.path.basename(path).removesuffix(".py")
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def least(functions):
    """The least time of a call of each, in us; in turns."""
    times = {name: float("inf") for name in functions}
    for _ in range(SLICES):
        for name, function in functions.items():
            start = time.perf_counter()
            for _ in range(CALLS):
                function()
            times[name] = min(times[name], (time.perf_counter() - start) / CALLS * 1e6)
    return times


class Nothing(torch.nn.Module):
    def forward(self, *tensors):
        return None


def main():
    exported = load(sys.argv[1])
    import torch.utils.cpp_extension as cpp_extension
    root = os.environ.get("TORCH_EXTENSIONS_DIR") or cpp_extension.get_default_build_root()
    library = glob.glob(os.path.join(root, exported.NAMESPACE + "-*", "operator", "*.so"))[0]
    set_kernel = ctypes.CDLL(library).kevin_set_kernel
    set_kernel.argtypes = [ctypes.c_int, ctypes.c_void_p]
    libc = ctypes.CDLL("libc.so.6")  # neither reads memory; memchr returns null, no error: the default stream is 0, a length of 0 here
    set_kernel(0, ctypes.cast(libc.memchr if exported.DEVICE == "cuda" else libc.abs, ctypes.c_void_p))
    tensors = exported.example_inputs()
    inputs = tensors[:exported._COUNT]
    source = sys.modules[exported.Original.__module__]
    given = source.get_init_inputs() if hasattr(source, "get_init_inputs") else []
    precision = next(t.dtype for t in tensors if t.is_floating_point())
    drop_in = getattr(exported, exported._CLASS_NAME)(*given).eval().to(exported.DEVICE, precision)
    others = [torch.zeros((1, *t.shape[1:]) if t.dim() and t.shape[0] > 1 else 3, dtype=t.dtype, device=t.device) for t in inputs]
    outputs = list(zip(exported.SHAPES[0][1], exported._DTYPES[exported._INPUTS:]))
    nothing = Nothing()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kernel = least({"operator": lambda: exported.run(*tensors), "drop-in": lambda: drop_in(*inputs),
                        "module that does nothing": lambda: nothing(*inputs),
                        "torch.empty of its outputs": lambda: [torch.empty(e, dtype=d, device=exported.DEVICE) for e, d in outputs]})
        exported.Original.forward = lambda self, *tensors: None
        fallback = least({"drop-in that goes to an original that does nothing": lambda: drop_in(*others),
                          "module that does nothing": lambda: nothing(*others)})
    print(f"{exported._CLASS_NAME}: {len(tensors)} tensors; load {os.getloadavg()[0]:.1f}")
    for name, value in {**kernel, **fallback}.items():
        print(f"{name}: {value:.2f} us")
    print(f"overhead of the operator: {kernel['operator']:.2f} us; of the drop-in beside an empty module: "
          f"{kernel['drop-in'] - kernel['module that does nothing']:.2f} us; of the fallback: "
          f"{fallback['drop-in that goes to an original that does nothing'] - fallback['module that does nothing']:.2f} us")


if __name__ == "__main__":
    main()
