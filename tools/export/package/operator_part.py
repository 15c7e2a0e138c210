

import ast
import ctypes
import fcntl
import glob
import hashlib
import math
import os
import re
import sys
import typing

import torch

_HERE = os.path.dirname(os.path.abspath(__file__))
_DTYPES = [getattr(torch, name) for name in DTYPES]
_INPUTS = len(NAMES)
_OPERATORS = getattr(torch.ops, NAMESPACE)
_IS_REGISTERED = hasattr(_OPERATORS, "backward")  # this file, or a copy of it, was imported before in this process


# --- Building and loading ---


def _device_arguments():
    """The architectures for nvcc: that of this machine's GPU, with its own instructions."""
    if DEVICE == "cuda" and "TORCH_CUDA_ARCH_LIST" not in os.environ and torch.cuda.is_available():
        major, minor = torch.cuda.get_device_capability()
        return f"{major}.{minor}a" if major >= 9 else f"{major}.{minor}"
    return None


def _processor():
    """What -march=native means here: a home folder may be shared by several machines."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return "".join(sorted({line for line in file if line.startswith(("model name", "flags"))}))
    except OSError:
        return ""


def _compiled(stem, sources, flags):
    """Builds a library with torch.utils.cpp_extension, once for this torch, Python and processor; returns its path."""
    from torch.utils import cpp_extension

    root = os.environ.get("TORCH_EXTENSIONS_DIR") or cpp_extension.get_default_build_root()
    key = hashlib.sha256("\n".join([torch.__version__, sys.version, _processor(), os.environ.get("CXX", ""),
                                    str(_device_arguments())]).encode()).hexdigest()[:12]
    folder = os.path.join(root, f"{NAMESPACE}-{key}", stem)
    os.makedirs(folder, exist_ok=True)
    library = os.path.join(folder, f"{NAMESPACE}_{stem}.so")
    done = os.path.join(folder, "done")
    with open(os.path.join(folder, "kevin.lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # ends with its process, unlike the file below
        if os.path.exists(done) and os.path.exists(library):
            return library
        if os.path.exists(os.path.join(folder, "lock")):
            os.remove(os.path.join(folder, "lock"))
        architectures = _device_arguments()
        if architectures:
            os.environ["TORCH_CUDA_ARCH_LIST"] = architectures
        try:
            cpp_extension.load(name=f"{NAMESPACE}_{stem}", sources=sources, build_directory=folder,
                               is_python_module=False, with_cuda=DEVICE == "cuda", **flags)
        except Exception as error:
            raise ImportError(f"{NAMESPACE}: the kernel cannot be built on this machine: {error}\n"
                              f"It needs {'nvcc (a CUDA toolkit)' if DEVICE == 'cuda' else 'g++'} and ninja "
                              "(pip install ninja).") from error
        finally:
            if architectures:
                del os.environ["TORCH_CUDA_ARCH_LIST"]
        with open(done, "w", encoding="utf-8"):
            pass
    return library


def _library(stem, source, flags):
    """The path of a library: built by pip beside this file, else built now."""
    built = glob.glob(os.path.join(_HERE, f"{NAMESPACE}_{stem}.*so"))
    return built[0] if built else _compiled(stem, [os.path.join(_HERE, FOLDER, source)], flags)


def _load():
    suffix = "cu" if DEVICE == "cuda" else "cpp"
    flags = {"extra_cflags": ["-O2", "-std=c++20"]}
    if DEVICE == "cuda":
        kernel_flags = {**flags, "extra_cuda_cflags": CUDA_FLAGS}
    else:
        kernel_flags = {"extra_cflags": CPU_FLAGS, "extra_ldflags": ["-fopenmp", "-Wl,-Bsymbolic"]}
    operator = _library("operator", "operator.cpp", flags)
    torch.ops.load_library(operator)
    set_kernel = ctypes.CDLL(operator).kevin_set_kernel
    set_kernel.argtypes = [ctypes.c_int, ctypes.c_void_p]
    libraries = []
    for shape in range(len(SHAPES)):
        library = ctypes.CDLL(_library(f"kernel{shape}", f"kernel{shape}.{suffix}", kernel_flags))
        set_kernel(shape, ctypes.cast(library.kevin_kernel, ctypes.c_void_p))
        libraries.append(library)
    return libraries


if not _IS_REGISTERED:
    _OPERATORS.kevin_libraries = _load()  # kept as long as the process
_RUN, _FORWARD = _OPERATORS.run.default, _OPERATORS.forward.default


# --- The original, as the problem states it ---


class _Aten:
    """`torch` in the text of the original: every ATen operator by its name."""

    def __getattr__(self, name):
        return getattr(torch.ops.aten, name)


_STATEMENTS = (ast.Module, ast.FunctionDef, ast.arguments, ast.arg, ast.Return, ast.Assign, ast.AugAssign, ast.AnnAssign,
               ast.For, ast.While, ast.If, ast.Expr, ast.Pass, ast.Break, ast.Continue, ast.Name, ast.Attribute, ast.Call,
               ast.keyword, ast.Constant, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Subscript,
               ast.Slice, ast.List, ast.Tuple, ast.Dict, ast.expr_context, ast.operator, ast.unaryop, ast.boolop,
               ast.cmpop, ast.ListComp, ast.comprehension, ast.Assert)
_WORDS = {"torch", "math", "int", "float", "bool", "str", "range", "len", "min", "max", "abs", "sum", "list", "Tensor", "List",
          "Dict", "Optional", "Tuple"}
_ATTRIBUTES = {"shape", "dtype", "device", "append", "items", "keys", "values"}  # beside ATen's own


def _checked(tree):
    """The text states a problem in tensor operations. Text that does anything else is not run."""
    functions = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    known = _WORDS | functions | {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)} \
        | {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
    for node in ast.walk(tree):
        bad = not isinstance(node, _STATEMENTS)
        if isinstance(node, ast.Name):
            bad = node.id not in known or node.id.startswith("__")
        if isinstance(node, ast.Attribute):
            of_math = isinstance(node.value, ast.Name) and node.value.id == "math" and hasattr(math, node.attr)
            bad = node.attr.startswith("_") or node.attr == "from_file" or not (
                of_math or node.attr in _ATTRIBUTES or hasattr(torch.ops.aten, node.attr))
        if isinstance(node, ast.FunctionDef):
            bad = bool(node.decorator_list)
        if bad:
            raise ImportError(f"{NAMESPACE}: line {getattr(node, 'lineno', 0)} of the original's text is no tensor operation")
    return tree


def _original():
    text = re.sub(r"\b([A-Za-z_]\w*)\.shape\b", r"list(\1.shape)", REFERENCE)
    words = {"int": int, "float": float, "bool": bool, "str": str, "range": range, "len": len, "min": min, "max": max,
             "abs": abs, "sum": sum, "list": list, "AssertionError": AssertionError}
    scope = {"__builtins__": words, "torch": _Aten(), "math": math, "Tensor": torch.Tensor, "List": typing.List, "Dict": typing.Dict,
             "Optional": typing.Optional, "Tuple": typing.Tuple}
    try:
        tree = _checked(ast.parse(text))
    except (SyntaxError, ValueError) as error:
        raise ImportError(f"{NAMESPACE}: the original's text is no tensor operation: {error}") from error
    exec(compile(tree, f"<original of {NAMESPACE}>", "exec"), scope)
    return scope["forward"]


_ORIGINAL = _original()


def reference(*tensors):
    """The original in PyTorch, for tensors of any shape that it takes."""
    if PARAMETERS_IN_DICT:
        named = dict(zip(NAMES[FIRST_PARAMETER:], tensors[FIRST_PARAMETER:]))
        return _ORIGINAL(*tensors[:FIRST_PARAMETER], named)
    return _ORIGINAL(*tensors)


# --- The operator ---


def shape_of(*tensors):
    """The number of the shape in SHAPES that these tensors have; None: the kernel was made for others."""
    for number, (inputs, _) in enumerate(SHAPES):
        if all(tuple(t.shape) == extents for t, extents in zip(tensors, inputs)):
            return number
    return None


def _fake(*tensors):
    for tensor, name, dtype in zip(tensors, NAMES, _DTYPES):
        if tensor.dtype != dtype:
            raise RuntimeError(f"{NAMESPACE}: {name} must have the dtype {dtype}")
    shape = shape_of(*tensors)
    if shape is None:
        found = ", ".join(str(list(t.shape)) for t in tensors)
        raise RuntimeError(f"{NAMESPACE}: the kernel was made for other shapes than {found}")
    outputs = tuple(tensors[0].new_empty(extents, dtype=dtype)
                    for extents, dtype in zip(SHAPES[shape][1], _DTYPES[_INPUTS:]))
    return outputs[0] if len(outputs) == 1 else outputs or None


def _backward_of_original(gradients, inputs, needed):
    """The gradients of the needed inputs: the original is computed again, with its own backward."""
    with torch.enable_grad():
        leaves = [x.detach().requires_grad_(need) for x, need in zip(inputs, needed)]
        outputs = reference(*leaves)
        outputs = list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]
        pairs = [(o, g) for o, g in zip(outputs, gradients) if g is not None and o.requires_grad]
        wanted = [x for x, need in zip(leaves, needed) if need]
        found = torch.autograd.grad([o for o, _ in pairs], wanted, [g for _, g in pairs], allow_unused=True) \
            if pairs else [None] * len(wanted)
    return [torch.zeros_like(x) if g is None else g.contiguous() for x, g in zip(wanted, found)]


def _backward_fake(gradients, inputs, needed):
    return [torch.empty_like(x, memory_format=torch.contiguous_format) for x, need in zip(inputs, needed) if need]


_NO_BACKWARD = (f"{NAMESPACE} {'writes into its inputs' if INOUTS else 'was exported for inference only'}: call it under torch.no_grad() or "
                "torch.inference_mode(), or detach its inputs")


def _save(ctx, inputs, output):
    ctx.save_for_backward(*inputs)
    outputs = output if isinstance(output, (tuple, list)) else [output]
    ctx.mark_non_differentiable(*[o for o in outputs if not o.is_floating_point()])


def _backward(ctx, *gradients):
    if INFERENCE_ONLY:
        raise RuntimeError(_NO_BACKWARD)
    needed = list(ctx.needs_input_grad)
    found = iter(_OPERATORS.backward.default(list(gradients), list(ctx.saved_tensors), needed))
    return tuple(next(found) if need else None for need in needed)


def _register():
    library = _OPERATORS.kevin_library = torch.library.Library(NAMESPACE, "FRAGMENT")
    for name in ("run", "forward"):
        torch.library.register_fake(f"{NAMESPACE}::{name}", lib=library)(_fake)
    if not INOUTS:  # torch has formulas for operators alone that write nothing
        torch.library.register_autograd(f"{NAMESPACE}::run", _backward, setup_context=_save, lib=library)
    library.define("backward(Tensor?[] gradients, Tensor[] inputs, bool[] needed) -> Tensor[]")
    torch.library.impl(f"{NAMESPACE}::backward", "CompositeExplicitAutograd", lib=library)(_backward_of_original)
    torch.library.register_fake(f"{NAMESPACE}::backward", lib=library)(_backward_fake)


if not _IS_REGISTERED:
    _register()


def _note_writes(tensors):
    """So that autograd notices where it has saved one of them for a backward."""
    for place in INOUTS:
        if not tensors[place].is_inference():
            torch.autograd.graph.increment_version(tensors[place])


def run(*tensors):
    """The kernel. The tensors are those of NAMES in their order; the shapes are in SHAPES, others are an error. Writes into
    those of INOUTS. Differentiable through the original's backward unless it was exported for inference only, or writes."""
    if torch.is_grad_enabled():
        for tensor in tensors:
            if tensor.requires_grad:
                if INFERENCE_ONLY:
                    raise RuntimeError(_NO_BACKWARD)
                return _RUN(*tensors)
    outputs = _FORWARD(*tensors)
    if INOUTS and not torch.compiler.is_compiling():
        _note_writes(tensors)
    return outputs


def flatten_parameters(tensors, shape=0):
    """The parameters (NAMES from FIRST_PARAMETER on) as views of one block, in which the kernel takes them. Others are
    copied into a block at every call. Only where BLOCK_OFFSETS is not None."""
    if BLOCK_OFFSETS is None:
        return list(tensors)
    offsets, elements = BLOCK_OFFSETS[shape]
    block = torch.empty(elements, dtype=tensors[0].dtype, device=tensors[0].device)
    views = [block.narrow(0, at, t.numel()).view(t.shape) for at, t in zip(offsets, tensors)]
    for view, tensor in zip(views, tensors):
        view.copy_(tensor.detach())
    return views


def example_inputs(shape=0, device=DEVICE):
    """Inputs like those that the kernel was verified on."""
    made = []
    for extents, dtype, (kind, scale, offset, structure, values) in zip(SHAPES[shape][0], _DTYPES, DRAWN):
        if kind == "stored":
            with open(os.path.join(_HERE, FOLDER, values), "rb") as file:
                tensor = torch.frombuffer(bytearray(file.read()), dtype=dtype)
            made.append(tensor.reshape(extents).to(device))
            continue
        scale = scale[shape]
        tensor = torch.rand(extents, device=device) if kind in ("uniform", "uniform01", "positive") \
            else torch.randn(extents, device=device)
        if kind == "uniform":
            tensor = tensor * 2 - 1
        elif kind == "positive":
            tensor = tensor + 0.1
        elif kind == "signs":
            tensor = tensor.sign()
        tensor = tensor * scale + offset
        if structure == "upper":
            tensor = tensor.triu()
        elif structure == "lower":
            tensor = tensor.tril()
        elif structure == "symmetric":
            tensor = (tensor + tensor.transpose(-1, -2)) / 2
        if dtype == torch.bool:
            tensor = tensor > 0
        elif not dtype.is_floating_point:
            tensor = tensor.floor().clamp(max=math.ceil(scale + offset) - 1)
        made.append(tensor.to(dtype))
    return made
