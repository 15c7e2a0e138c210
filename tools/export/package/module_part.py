

# --- Whether a module is the one that the kernel was made for ---

from torch.nn.modules.module import _global_forward_hooks, _global_forward_pre_hooks


@functools.lru_cache(maxsize=None)
def _constant(place):
    """A tensor of the graph that the module does not hold."""
    return _kept_value(place).to(DEVICE)


def _part_text(parts):
    return "module" + "".join(f"._modules[{part!r}]" for part in parts if part)


def _text_of(place, path):
    if path is None:
        return f"_constant({place})"
    *parts, name = path.split(".")
    table = "_parameters" if path in _ORIGIN["parameters"] else "_buffers"
    return f"{_part_text(parts)}.{table}[{name!r}]"


# The module's tensors in the order of the problem; one expression, because this is in every call.
_states_of = eval("lambda module: [" + ", ".join(_text_of(i, _STATES[name]) for i, name in enumerate(NAMES[_COUNT:])) + "]")
_KEPT = [(i, name) for i, name in enumerate(NAMES[_COUNT:]) if DRAWN[_COUNT + i][0] == "stored" and _STATES[name] is not None]


@functools.lru_cache(maxsize=None)
def _kept_value(place):
    _, _, _, _, values = DRAWN[_COUNT + place]
    with open(os.path.join(_HERE, FOLDER, values), "rb") as file:
        tensor = torch.frombuffer(bytearray(file.read()), dtype=_DTYPES[_COUNT + place])
    return tensor.reshape(SHAPES[0][0][_COUNT + place])


def _kept_difference(module):
    """The first table or mask whose values are not those that the kernel was verified with, in words; None: all are."""
    if not _KEPT:
        return None
    try:
        states = _states_of(module)
        for place, name in _KEPT:
            if states[place].device.type != "meta" and not torch.equal(states[place].detach().cpu(), _kept_value(place)):
                return f"the values of {_STATES[name]}"
    except (KeyError, RuntimeError):
        return "its tensors"
    return None


def _described_object(value, depth):
    """A configuration: an object with plain attributes, of a class that is neither Python's nor torch's."""
    home = type(value).__module__.partition(".")[0]
    is_namespace = type(value).__name__ in ("SimpleNamespace", "Namespace")
    if depth > 3 or not hasattr(value, "__dict__") or isinstance(value, (type, torch.nn.Module)) or home == "torch" \
            or (home in sys.stdlib_module_names and not is_namespace):
        return None
    parts = {name: _described(part, depth + 1) for name, part in sorted(vars(value).items()) if not name.startswith("_")}
    text = repr({name: part for name, part in parts.items() if part is not None})
    return f"{type(value).__name__} {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _described(value, depth=0):
    """As the importer describes an attribute (env/import/origin.py): None for what is not compared."""
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
        return value.__qualname__ + line + (f" {[_described(one, depth + 1) for one in inner]}" if inner else "")
    if isinstance(value, functools.partial) and depth < 3:
        return f"partial {[_described(v, depth + 1) for v in (value.func, *value.args, *value.keywords.items())]}"
    if type(value) in (dict, list, tuple) and depth < 3:
        items = value.items() if type(value) is dict else enumerate(value)
        text = repr([(str(name), _described(part, depth + 1)) for name, part in items])
        return f"{type(value).__name__} {hashlib.sha256(text.encode()).hexdigest()[:16]}"
    return _described_object(value, depth)


def _part_difference(path, part, class_name):
    """The same of one part that is not the module itself."""
    if type(part).__name__ != class_name:
        return f"part {path}"
    if part._forward_hooks or part._forward_pre_hooks:
        return f"the hook of part {path}"
    if part.training != _TRAINING:
        return f"part {path}, which is in {'evaluation' if _TRAINING else 'training'} mode"
    return f"the forward of part {path}" if "forward" in vars(part) else None


def _difference(module):
    """The first attribute or part of the module that is not as the kernel was made for it; None: there is none."""
    expected, classes = _ORIGIN["attributes"], _ORIGIN["classes"]
    if vars(type(module)).get("kevin_namespace") != NAMESPACE:
        return f"its class {type(module).__name__}, which is derived from the drop-in"
    parts = dict(module.named_modules())
    for path, name in classes.items():
        difference = f"part {path}" if path not in parts else path and _part_difference(path, parts[path], name)
        if difference:
            return difference
    if len(parts) != len(classes):
        return "the list of parts"
    given = dict(module.named_parameters())
    added = [path for path in given if path not in _ORIGIN["parameters"]]
    if added and len(given) != len(_ORIGIN["parameters"]):
        return f"parameter {added[0]}"
    for key, wanted in expected.items():
        path, _, name = key.rpartition(".")
        if name not in vars(parts[path]):
            return f"{key}, which it has no longer"
        value = vars(parts[path])[name]
        described = _described(value)
        if described != wanted and not (described is None and isinstance(value, torch.Tensor)):  # one on meta has no values yet
            return f"{key} = {described} (the kernel was made for {wanted})"
    return None


# --- What is remembered of a module between calls ---


class _Memory:
    """A copy of the module, also a pickled one, begins with an empty one."""

    __slots__ = ("states", "invalid", "versions", "places", "seen", "hooks")

    def __init__(self):
        self.states, self.invalid = None, None  # the tensors of the last call; None, or why the kernel does not take them
        self.versions = []  # of kept tensors: (place, tensor, how often it was written to)
        self.places, self.seen, self.hooks = [], None, []  # functions and what they gave when the module was checked

    def __reduce__(self):
        return _Memory, ()

    def __deepcopy__(self, _):
        return _Memory()

    def see(self, module):
        """Takes the parts of the module as they are. Returns the scalars in lists, dictionaries and configurations, as
        (where, name, value), for torch.compile."""
        places, hooks, inside = [], [], []
        for path, part in module.named_modules():
            table = vars(part)
            names = [name for name in table if not name.startswith("_") and (path or name != "training")]
            if len(names) > 0:
                places.append((operator.itemgetter(*names), table))
            places.append((len, table))
            places += [(dict.copy, children) for children in (part._modules,) if children]
            places += [(dict.copy, tensors) for tensors in (part._parameters, part._buffers) if None in tensors.values()]
            for name in names:
                self._see_inside(table[name], places, inside, 0)
            if path:
                hooks += [part._forward_hooks, part._forward_pre_hooks]
        self.states, self.hooks, self.places = None, hooks, places
        self.seen = [take(table) for take, table in places]
        states = _states_of(module) if _KEPT and module._kevin_difference is None else []
        self.versions = [(place, states[place], states[place]._version) for place, _ in _KEPT
                         if states and not states[place].is_inference()]  # torch does not count for inference tensors
        return inside

    def _see_inside(self, value, places, inside, depth):
        """Lists, dictionaries and configurations change in place."""
        if depth > 3 or not (type(value) in (list, dict) or _described_object(value, 0)):
            return
        table = value if type(value) in (list, dict) else vars(value)
        places.append((type(table).copy, table))
        for name, one in enumerate(table) if type(table) is list else list(table.items()):
            if type(one) in _SCALARS:
                inside.append((value, name, one))
            else:
                self._see_inside(one, places, inside, depth + 1)

    def is_current(self):
        """Whether no part has changed since. In every call: values are compared by their identity first."""
        try:
            return [take(table) for take, table in self.places] == self.seen and not any(self.hooks)
        except Exception:  # an attribute that is gone; two different tensors
            return False

    def why_not(self, states):
        """None, or (kind, reason) why the kernel does not take these tensors of the module."""
        if self.states is None or not all(map(operator.is_, states, self.states)):
            self.states, self.invalid = None, _why_invalid(states)
            self.states = list(states)
        return self.invalid

    def is_kept(self, states):
        """Whether nothing was written into tables and masks since the module was checked."""
        for place, tensor, version in self.versions:
            if states[place] is not tensor or tensor._version != version:
                return False
        return True


def _why_invalid(states):
    shapes = tuple(tuple(s.shape) for s in states)
    for name, state, dtype in zip(NAMES[_COUNT:], states, _DTYPES[_COUNT:]):
        path = _STATES[name] or name
        if type(state) not in _TENSOR_CLASSES:
            return ("class", path), f"its `{path}` is a {type(state).__name__}"
        if state.dtype is not dtype:
            return ("dtype", path), f"its `{path}` has the dtype {state.dtype}, not {dtype}"
        if not (state.is_cuda if _ON_GPU else state.is_cpu):
            return ("device", path), f"its `{path}` is on {state.device}, not on {DEVICE}"
        if state.layout is not _STRIDED or not state.is_contiguous():
            return ("strides", path), f"its `{path}` is not contiguous"
    return None if shapes in _STATE_SHAPES else (("shape", "parameters"), "its parameters have other shapes")


def _traced_text():
    """Whether the parts are as they were imported, as an expression that torch.compile traces and guards."""
    tests = []
    for path, name in _ORIGIN["classes"].items():
        part = _part_text(path.split("."))
        if path:
            tests.append(f"type({part}).__name__ == {name!r} and {part}.training is {_TRAINING} and "
                         f"not {part}._forward_hooks and not {part}._forward_pre_hooks")
    for key, text in _ORIGIN["attributes"].items():
        path, _, name = key.rpartition(".")
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            continue  # a function, a type, a tensor, infinity
        if path and path in _ORIGIN["classes"] and name.isidentifier():
            found = f"{_part_text(path.split('.'))}.{name}"
            tests.append(f"tuple({found}) == {value!r}" if type(value) is tuple else f"{found} == {value!r}")
    return " and ".join(tests) or "True"


_parts_as_traced = eval("lambda module: " + _traced_text())


def _inside_as_traced(inside):
    """Whether lists, dictionaries and configurations have the scalars that they had when the module was checked."""
    for value, name, scalar in inside:
        if (value[name] if isinstance(value, (list, dict)) else getattr(value, name)) != scalar:
            return False
    return True
