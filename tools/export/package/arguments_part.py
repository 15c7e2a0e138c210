

# --- The original, and whether the kernel takes the arguments of a call ---

import builtins
import enum
import functools
import importlib
import importlib.util
import inspect
import json
import operator
import warnings
from torch.autograd import forward_ad as _forward_ad

_ORIGIN = json.loads(ORIGIN)
_CLASS_NAME = _ORIGIN["class"]


def _load_original():
    try:
        if _ORIGIN.get("import"):
            module = importlib.import_module(_ORIGIN["import"])
        else:
            module = _load_text(f"{NAMESPACE}_original")
    except ModuleNotFoundError as error:
        raise ImportError(f"{_CLASS_NAME}: the original imports `{error.name}`, which Python does not find here: install it, or "
                          "put the folder that holds it on the path (PYTHONPATH, or sys.path before this import)") from error
    return functools.reduce(getattr, _CLASS_NAME.split("."), module)


def _load_text(name):
    """The module of original.py. One in a process: its classes stay the same when this file is imported again."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, os.path.join(_HERE, FOLDER, "original.py"))
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


Original = _load_original()  # the user's own class or function
_ARGUMENTS = _ORIGIN["arguments"]
_STATES = _ORIGIN["states"]  # name in the problem -> name in the module
_COUNT = len(NAMES) - len(_STATES)  # tensors among the arguments
_VIEWS = _ORIGIN.get("views") or [None] * _COUNT
_PLAIN = all(a.get("tensor") for a in _ARGUMENTS) and not any(_VIEWS)
_INPUT_SHAPES = {tuple(inputs[:_COUNT]) for inputs, _ in SHAPES}
_ONE_SHAPE = len(_INPUT_SHAPES) == 1
# Of each input: its shapes, its dtype, and the obstacles that it may be.
_EACH = [({inputs[i] for inputs, _ in SHAPES}, _DTYPES[i],
          *((kind, i) for kind in ("class", "shape", "dtype", "device", "layout", "strides"))) for i in range(_COUNT)]
_STATE_SHAPES = {tuple(inputs[_COUNT:]) for inputs, _ in SHAPES}
_OUTPUT, _TRAINING = _ORIGIN["output"], _ORIGIN["training"]
_ONE_OUTPUT = isinstance(_OUTPUT, int) and not INOUTS
_ON_GPU = DEVICE == "cuda"
_is_compiling, _is_grad_enabled = torch.compiler.is_compiling, torch.is_grad_enabled
_is_autocast_enabled = torch.is_autocast_enabled
_transform = torch._C._functorch.peek_interpreter_stack
_TENSOR_CLASSES, _STRIDED = (torch.Tensor, torch.nn.Parameter), torch.strided
_SCALARS = (bool, int, float, str, type(None))
_signature = inspect.signature(Original.forward if isinstance(Original, type) else Original)
_warned = set()


def _warn(kind, reason, frames):
    """One warning for each reason why a call goes to the original, `frames` above this one."""
    if kind not in _warned:
        _warned.add(kind)
        warnings.warn(f"{_CLASS_NAME}: the original runs instead of the kernel: {reason}", stacklevel=frames + 1)


def _rebuild(structure, tensors):
    """The outputs in the structure of the original: a number is a position in `tensors`."""
    if isinstance(structure, int):
        return tensors[structure]
    if "none" in structure:
        return None
    if "dict" in structure:
        return {name: _rebuild(part, tensors) for name, part in structure["dict"]}
    parts = [_rebuild(part, tensors) for part in structure["list"]]
    return tuple(parts) if structure["tuple"] else parts


def _result(outputs, tensors, given):
    """What the original returns. `given`: the arguments, `tensors`: what the kernel took for them, in the same memory."""
    if _ONE_OUTPUT:
        return outputs
    outputs = list(outputs) if isinstance(outputs, (tuple, list)) else [] if outputs is None else [outputs]
    if INOUTS:
        if not _is_compiling():
            _note_writes(tensors)
        outputs += [given[place] for place in INOUTS]
    return _rebuild(_OUTPUT, outputs)


def _is_same(value, constant):
    """Whether a scalar argument has the value that the kernel was made for; a NaN is the same as a NaN, -0.0 not as 0.0."""
    return type(value) is type(constant) and type(value) in _SCALARS and repr(value) == repr(constant)


def _take_apart(name, structure, value, tensors):
    """Appends the tensors of an argument; returns the reason why it is not as the kernel was made for it, or None."""
    if "tensor" in structure:
        tensors.append(value)
        return None if isinstance(value, torch.Tensor) else f"`{name}` is no tensor"
    if "list" in structure:
        parts = structure["list"]
        if not isinstance(value, (list, tuple)) or len(value) != len(parts):
            return f"`{name}` is not of {len(parts)} parts"
        named = [(f"{name}[{i}]", part, one) for i, (part, one) in enumerate(zip(parts, value))]
    elif "dict" in structure:
        names = [key for key, _ in structure["dict"]]
        if not isinstance(value, dict) or set(value) != set(names):
            return f"`{name}` has not the keys {', '.join(names)}"
        named = [(f"{name}[{key!r}]", part, value[key]) for key, part in structure["dict"]]
    else:
        constant = structure["value"]
        if isinstance(constant, dict):
            constant = float(constant["float"])  # nan, inf and -inf, which JSON has not
        return None if _is_same(value, constant) else f"`{name}` is not {constant!r}, for which the kernel was made"
    reasons = [_take_apart(*one, tensors) for one in named]
    return next((reason for reason in reasons if reason is not None), None)


def _layout(view, extents):
    """Of a view into a contiguous base of these extents: the size and stride of each dimension that is not repeated, the
    strides of the base, and how far the view begins behind it."""
    strides, stride = [], 1
    for extent in reversed(extents):
        strides.insert(0, stride)
        stride *= extent
    sizes, start = {}, 0
    for place, (begin, count, extent) in enumerate(view["parts"]):
        equal_parts = 1 < count < extent and extent % count == 0 and begin % count == 0
        width = extents[place] // (extent // count) if equal_parts else extents[place] if count == extent else count
        start += (begin // count * width if equal_parts else begin) * strides[place]
        if place < len(view["order"]):
            sizes[view["order"][place]] = (width, strides[place])
    return sizes, strides, start


_LAYOUTS = [[] if view is None else [(inputs[i], *_layout(view, inputs[i])) for inputs, _ in SHAPES]
            for i, view in enumerate(_VIEWS)]


def _base(place, tensor, tensors):
    """The contiguous memory that a view looks into; None: it has another layout."""
    view = _VIEWS[place]
    if tensor.dim() != len(view["shape"]):
        return None
    for d in view["repeated"]:
        like = view["like"].get(str(d))
        size = view["shape"][d] if like is None or view["shape"][d] == 1 else tensors[like].shape[d]
        if tensor.shape[d] != size or (size != 1 and tensor.stride(d) != 0):
            return None
    for extents, sizes, strides, start in _LAYOUTS[place]:
        if not all(tensor.shape[d] == n and (n == 1 or tensor.stride(d) == s) for d, (n, s) in sizes.items()):
            continue
        if all(count == extent for _, count, extent in view["parts"]):
            return torch.as_strided(tensor, extents, strides)
        if _is_compiling():
            return None  # what lies around a part is not known to the compiler
        offset = tensor.storage_offset() - start
        fits = offset >= 0 and (offset + math.prod(extents)) * tensor.element_size() <= tensor.untyped_storage().nbytes()
        return torch.as_strided(tensor, extents, strides, offset) if fits else None
    return None


def _based(tensors):
    found = []
    for place, tensor in enumerate(tensors):
        base = tensor if _VIEWS[place] is None else _base(place, tensor, tensors)
        if base is None:
            return None, None, (("strides", place), f"`{NAMES[place]}` has other strides: {tuple(tensor.stride())} of "
                                                    f"{tuple(tensor.shape)}")
        found.append(base)
    return found, tensors, None


def _bound(first, args, kwargs):
    """What the kernel takes for the tensors among the arguments, and these; or (kind, reason) why it does not take them."""
    try:
        bound = _signature.bind(*first, *args, **kwargs)
    except TypeError:
        return None, None, ("arguments", "other arguments")
    bound.apply_defaults()
    values = {}
    for name, value in bound.arguments.items():
        kind = _signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            begin = len(values) - len(first)
            values.update({f"x{begin + i}": v for i, v in enumerate(value)})
        elif kind is inspect.Parameter.VAR_KEYWORD:
            values.update(value)
        else:
            values[name] = value
    tensors = []
    for argument in _ARGUMENTS:
        name = argument["name"]
        if name not in values:
            return None, None, (("missing", name), f"`{name}` is missing")
        reason = _take_apart(name, argument.get("parts", argument), values.pop(name), tensors)
        if reason is not None:
            return None, None, (("arguments", reason), reason)
    for name, value in list(values.items())[len(first):]:
        default = _signature.parameters[name].default if name in _signature.parameters else None
        if value is not default and not _is_same(value, default):
            return None, None, (("given", name), f"`{name}` is given")
    return _based(tensors) if any(_VIEWS) else (tensors, tensors, None)


def _obstacle(tensors):
    """Why the kernel does not take these tensors, as (kind, input or word); None: it does. Quick, because it is in every call."""
    for tensor, (shapes, dtype, *kinds) in zip(tensors, _EACH):
        if type(tensor) not in _TENSOR_CLASSES:
            return kinds[0]
        if tensor.shape not in shapes:
            return kinds[1]
        if tensor.dtype is not dtype:
            return kinds[2]
        if not (tensor.is_cuda if _ON_GPU else tensor.is_cpu):
            return kinds[3]
        if tensor.layout is not _STRIDED:
            return kinds[4]
        if not tensor.is_contiguous():
            return kinds[5]
    if not _ONE_SHAPE and tuple([t.shape for t in tensors]) not in _INPUT_SHAPES:
        return "shapes", None
    if INOUTS and _share_memory(tensors):
        return "overlap", None
    if _is_autocast_enabled(DEVICE):
        return "autocast", None
    active = _transform()
    return None if active is None else ("transform", active.key().name)


def _share_memory(tensors):
    """Whether a tensor that the kernel writes into has memory of another one."""
    ends = [(t.data_ptr(), t.data_ptr() + t.nbytes) for t in tensors]
    return any(begin < ends[place][1] and ends[place][0] < end
               for place in INOUTS for other, (begin, end) in enumerate(ends) if other != place)


def _reason(obstacle, tensors):
    """The sentence for the warning."""
    kind, which = obstacle
    if kind == "shapes":
        return "the kernel was made for other shapes together"
    if kind == "overlap":
        return "an argument that is written into shares memory with another one"
    if kind == "autocast":
        return "autocast changes the dtypes"
    if kind == "transform":
        return f"torch.func's {which.lower()} is active, which the kernel has no rule for"
    name, tensor, (shapes, dtype, *_) = f"`{NAMES[which]}`", tensors[which], _EACH[which]
    if kind == "class":
        return f"{name} is a {type(tensor).__name__}"
    if kind == "dtype":
        return f"the kernel was made for {name} in {dtype}, not {tensor.dtype}"
    if kind == "device":
        return f"the kernel was made for {DEVICE}, not {tensor.device.type}, where {name} is"
    if kind == "layout":
        return f"{name} is {tensor.layout}"
    if kind == "strides":
        return f"{name} is not contiguous: strides {tensor.stride()}"
    made_for = " and ".join(str(shape) for shape in sorted(shapes)[:3]) + (" and others" if len(shapes) > 3 else "")
    return f"the kernel was made for other shapes: {name} is {tuple(tensor.shape)}, not {made_for}"


def _needs_gradient(tensors):
    for tensor in tensors:
        if tensor.requires_grad:
            return True
    return False


def _has_tangent(tensors):
    return any(_forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors)


_GRADIENT = ("requires_grad", "gradients are needed (torch.no_grad() or torch.inference_mode() leave them out)")
_FORWARD_GRADIENT = ("tangent", "an argument or parameter has a tangent of forward-mode AD, which the kernel does not carry on")


def _in_transform():
    return _transform() is not None


_in_transform._dynamo_marked_constant = True  # torch.compile calls it when it traces, and guards the transforms itself


def _takes(tensors, states):
    """Whether the kernel takes them; in a form that torch.compile traces."""
    if torch.is_autocast_enabled(DEVICE) or _in_transform() or _forward_ad._current_level >= 0:
        return False
    for inputs, _ in SHAPES:
        fits = True
        for tensor, extents, dtype in zip([*tensors, *states], inputs, _DTYPES):
            if tuple(tensor.shape) != extents or tensor.dtype != dtype or tensor.device.type != DEVICE \
                    or not tensor.is_contiguous():
                fits = False
                break
        if fits:
            return not (torch.is_grad_enabled() and (_needs_gradient(tensors) or _needs_gradient(states)))
    return False


def _publish(name, value):
    """Makes the drop-in importable under the name of the original, also where this file or Python means something else by
    that name: it is then an attribute of the module alone."""
    value.__module__, value.__name__, value.__qualname__, value.kevin_namespace = __name__, name, name, NAMESPACE
    before = globals().get(name)
    if not hasattr(builtins, name) and (before is None or hasattr(before, "kevin_namespace")):
        globals()[name] = value
        return
    module = sys.modules.get(__name__)
    if module is None or vars(module) is not globals():
        raise ImportError(f"{NAMESPACE}: {name} is a name of this file's own; import the file as a module")
    module.__class__ = type("Exported", (type(module),), {name: property(lambda _: value)})
