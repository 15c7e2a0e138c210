"""What a kernel needs to take the module's place: its arguments, tensors, outputs, attributes. Exported files compare a
module with this before they use the kernel (tools/export/package/module_part.py, which describes attributes alike)."""

import enum
import functools
import hashlib
import inspect
import sys

import torch
from torch.utils._pytree import tree_unflatten

KEEPS_STATISTICS = (torch.nn.modules.batchnorm._BatchNorm, torch.nn.modules.instancenorm._InstanceNorm)


def described_object(value, depth):
    """A configuration: an object with plain attributes, of a class that is neither Python's nor torch's."""
    home = type(value).__module__.partition(".")[0]
    is_namespace = type(value).__name__ in ("SimpleNamespace", "Namespace")
    if depth > 3 or not hasattr(value, "__dict__") or isinstance(value, (type, torch.nn.Module)) or home == "torch" \
            or (home in sys.stdlib_module_names and not is_namespace):
        return None
    parts = {name: described(part, depth + 1) for name, part in sorted(vars(value).items()) if not name.startswith("_")}
    text = repr({name: part for name, part in parts.items() if part is not None})
    return f"{type(value).__name__} {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def described(value, depth=0):
    """An attribute, as exported files describe it (tools/export/package/module_part.py); None for what is not compared."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    if isinstance(value, (tuple, list)) and all(v is None or isinstance(v, (bool, int, float, str)) for v in value):
        return repr(tuple(value))
    if isinstance(value, (torch.dtype, enum.Enum)):
        return str(value)
    if isinstance(value, torch.Tensor) and value.device.type != "meta" and value.numel() <= 1 << 20:
        data = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
        return f"{value.dtype} {tuple(value.shape)} {hashlib.sha256(data).hexdigest()[:16]}"
    if inspect.isfunction(value) or inspect.isbuiltin(value):
        inner = [cell.cell_contents for cell in getattr(value, "__closure__", None) or () if depth < 3]
        line = f":{value.__code__.co_firstlineno}" if "<l" in value.__qualname__ else ""  # a <lambda>, or <locals> of a function
        return value.__qualname__ + line + (f" {[described(one, depth + 1) for one in inner]}" if inner else "")
    if isinstance(value, functools.partial) and depth < 3:
        return f"partial {[described(v, depth + 1) for v in (value.func, *value.args, *value.keywords.items())]}"
    if type(value) in (dict, list, tuple) and depth < 3:
        items = value.items() if type(value) is dict else enumerate(value)
        text = repr([(str(name), described(part, depth + 1)) for name, part in items])
        return f"{type(value).__name__} {hashlib.sha256(text.encode()).hexdigest()[:16]}"
    return described_object(value, depth)


def attributes(module):
    found = {}
    for path, part in module.named_modules():
        for name, value in vars(part).items():
            text = None if name.startswith("_") or name == "training" else described(value)
            if text is not None:
                found[f"{path}.{name}" if path else name] = text
    return found


def structure(value):
    """Numbers for tensors; {"none": true}, {"list": [...], "tuple": bool} and {"dict": [[name, part], ...]}; None:
    something else."""
    if isinstance(value, int):
        return value
    if value is None:
        return {"none": True}
    if type(value) in (list, tuple):
        parts = [structure(part) for part in value]
        return None if None in parts else {"list": parts, "tuple": type(value) is tuple}
    if type(value) is dict and all(isinstance(name, str) for name in value):
        parts = [[name, structure(part)] for name, part in value.items()]
        return None if any(part is None for _, part in parts) else {"dict": parts}
    return None


def output_structure(draft):
    spec = draft.graph.program.call_spec.out_spec
    return structure(tree_unflatten([draft.number_of(leaf) for leaf in range(spec.num_leaves)], spec))


def why_none(case, draft):
    if case.origin is None:
        return "nothing says where its class is"
    if isinstance(case.target, torch.nn.Module) and case.target.training:
        for part in case.target.modules():
            if isinstance(part, KEEPS_STATISTICS) and part.track_running_stats:
                return f"in training mode its {type(part).__name__} keeps statistics, which a kernel does not (--eval)"
    if output_structure(draft) is None:
        return "its output is of a class of its own"
    for place in draft.changed_places():
        view = case.given.views[place]
        if view is not None and any(count < extent for _, count, extent in view.parts):
            return f"it writes into `{case.names[place]}`, a part of other memory"
    return None


def origin(case, draft):
    """The description, or None; then a note says why."""
    why = why_none(case, draft)
    if why is not None:
        if case.origin is not None:
            case.notes.append("an exported kernel cannot take the module's place: " + why)
        return None
    is_module = case.is_module
    tensors = dict(case.target.named_parameters()) if is_module else {}
    parameters = list(tensors)
    if is_module:
        tensors.update(case.target.named_buffers())
    states = {}
    for node in draft.tensors[len(draft.graph.inputs):]:
        path = draft.graph.states[node].removeprefix("function.")
        states[draft.name(node)] = path if path in tensors else None
    if any(path is None and node not in draft.kept for node, path in
           zip(draft.tensors[len(draft.graph.inputs):], states.values())):
        case.notes.append("an exported kernel cannot take the module's place: it has tensors that are neither parameters "
                          "nor buffers")
        return None
    if case.origin["import"]:
        case.notes.append(f"an exported file imports `{case.origin['import']}`: where it is used, that must be on Python's path")
    arguments, views = case.given.described()
    return {**case.origin, "details": {
        "arguments": arguments, "views": views, "changed": draft.changed_places(),
        "states": states, "parameters": parameters, "output": output_structure(draft),
        "training": bool(is_module and case.target.training), "attributes": attributes(case.target) if is_module else {},
        "classes": {path: type(part).__name__ for path, part in case.target.named_modules()} if is_module else {}}}
