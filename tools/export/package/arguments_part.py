

# --- The original, and whether the kernel takes the arguments of a call ---

import functools
import importlib
import importlib.util
import inspect
import json
import operator
import warnings

_ORIGIN = json.loads(ORIGIN)
_CLASS_NAME = _ORIGIN["class"]


def _load_original():
    if not _ORIGIN.get("import"):
        name = f"{NAMESPACE}_original"
        spec = importlib.util.spec_from_file_location(name, os.path.join(_HERE, FOLDER, "original.py"))
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(_ORIGIN["import"])
    return functools.reduce(getattr, _CLASS_NAME.split("."), module)


Original = _load_original()  # the user's own class or function
_ARGUMENTS = _ORIGIN["arguments"]
_STATES = _ORIGIN["states"]  # name in the problem -> name in the module
_COUNT = len(NAMES) - len(_STATES)  # tensors among the arguments
_VIEWS = _ORIGIN.get("views") or [None] * _COUNT
_PLAIN = all(a.get("tensor") for a in _ARGUMENTS) and not any(_VIEWS)
_INPUT_DTYPES = _DTYPES[:_COUNT]
_INPUT_SHAPES = {tuple(inputs[:_COUNT]) for inputs, _ in SHAPES}
_SHAPES_OF_EACH = [{inputs[i] for inputs, _ in SHAPES} for i in range(_COUNT)]
_ONE_SHAPE = len(_INPUT_SHAPES) == 1
_STATE_SHAPES = {tuple(inputs[_COUNT:]) for inputs, _ in SHAPES}
_OUTPUT, _TRAINING = _ORIGIN["output"], _ORIGIN["training"]
_ONE_OUTPUT = isinstance(_OUTPUT, int) and not INOUTS
_ON_GPU = DEVICE == "cuda"
_is_compiling, _is_grad_enabled = torch.compiler.is_compiling, torch.is_grad_enabled
_is_autocast_enabled = torch.is_autocast_enabled
_TENSOR_CLASSES = (torch.Tensor, torch.nn.Parameter)
_signature = inspect.signature(Original.forward if isinstance(Original, type) else Original)
_warned = set()


def _warn(kind, reason, frames):
    """One warning for each kind of call that goes to the original, `frames` above this one."""
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
        same = not isinstance(value, torch.Tensor) and type(value) is type(constant) and value == constant
        return None if same else f"`{name}` is not {constant!r}, for which the kernel was made"
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
            return None, None, f"`{NAMES[place]}` has other strides: {tuple(tensor.stride())} of {tuple(tensor.shape)}"
        found.append(base)
    return found, tensors, None


def _bound(first, args, kwargs):
    """What the kernel takes for the tensors among the arguments, and these; or the reason why it does not take them."""
    try:
        bound = _signature.bind(*first, *args, **kwargs)
    except TypeError:
        return None, None, "other arguments"
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
            return None, None, f"`{name}` is missing"
        reason = _take_apart(name, argument.get("parts", argument), values.pop(name), tensors)
        if reason is not None:
            return None, None, reason
    for name, value in list(values.items())[len(first):]:
        default = _signature.parameters[name].default if name in _signature.parameters else None
        if value is not default and (isinstance(value, torch.Tensor) or value != default):
            return None, None, f"`{name}` is given"
    return _based(tensors) if any(_VIEWS) else (tensors, tensors, None)


def _obstacle(tensors):
    """The kind of reason why the kernel does not take these tensors; None: it does. Quick, because it is in every call."""
    for tensor, shapes, dtype in zip(tensors, _SHAPES_OF_EACH, _INPUT_DTYPES):
        if type(tensor) not in _TENSOR_CLASSES:
            return "class"
        if tensor.shape not in shapes:
            return "shape"
        if tensor.dtype is not dtype:
            return "dtype"
        if not (tensor.is_cuda if _ON_GPU else tensor.is_cpu):
            return "device"
        if not tensor.is_contiguous():
            return "strides"
    if not _ONE_SHAPE and tuple([t.shape for t in tensors]) not in _INPUT_SHAPES:
        return "shape"
    if INOUTS and _share_memory(tensors):
        return "overlap"
    return "autocast" if _is_autocast_enabled(DEVICE) else None


def _share_memory(tensors):
    """Whether a tensor that the kernel writes into has memory of another one."""
    ends = [(t.data_ptr(), t.data_ptr() + t.nbytes) for t in tensors]
    return any(begin < ends[place][1] and ends[place][0] < end
               for place in INOUTS for other, (begin, end) in enumerate(ends) if other != place)


def _reason(kind, tensors):
    """The sentence for the warning."""
    def found(wanted, value):
        others = [value(t) for t, dtype in zip(tensors, _INPUT_DTYPES) if not wanted(t, dtype)]
        return others[0] if others else ""
    if kind == "class":
        return "an input is a " + found(lambda t, _: type(t) in _TENSOR_CLASSES, lambda t: type(t).__name__)
    if kind == "dtype":
        wanted = ", ".join(sorted({str(dtype) for dtype in _INPUT_DTYPES}))
        return f"the kernel was made for {wanted}, not {found(lambda t, dtype: t.dtype is dtype, lambda t: t.dtype)}"
    if kind == "device":
        return f"the kernel was made for {DEVICE}, not " + found(lambda t, _: t.device.type == DEVICE, lambda t: t.device.type)
    if kind == "overlap":
        return "an argument that is written into shares memory with another one"
    if kind == "strides":
        return f"an input is not contiguous: strides {found(lambda t, _: t.is_contiguous(), lambda t: t.stride())}"
    return "the kernel was made for other shapes" if kind == "shape" else "autocast changes the dtypes"


def _needs_gradient(tensors):
    for tensor in tensors:
        if tensor.requires_grad:
            return True
    return False


_GRADIENT = ("requires_grad", "gradients are needed (torch.no_grad() or torch.inference_mode() leave them out)")


def _takes(tensors, states):
    """Whether the kernel takes them; in a form that torch.compile traces."""
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
