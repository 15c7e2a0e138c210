

# --- The drop-in: the class (or function) of the original, with the kernel where it fits ---

if isinstance(Original, type):

    @functools.lru_cache(maxsize=None)
    def _constant(place):
        """A tensor of the graph that the module does not hold."""
        return _kept_value(place).to(DEVICE)

    def _text_of(place, path):
        if path is None:
            return f"_constant({place})"
        *parts, name = path.split(".")
        text = "module" + "".join(f"._modules[{part!r}]" for part in parts)
        table = "_parameters" if path in _ORIGIN["parameters"] else "_buffers"
        return f"{text}.{table}[{name!r}]"

    # The module's tensors in the order of the problem; one expression, because this is in every call.
    _states_of = eval("lambda module: [" + ", ".join(_text_of(i, _STATES[name]) for i, name in enumerate(NAMES[_COUNT:])) + "]")
    _KEPT = [(i, name) for i, name in enumerate(NAMES[_COUNT:]) if DRAWN[_COUNT + i][0] == "stored" and _STATES[name] is not None]

    @functools.lru_cache(maxsize=None)
    def _kept_value(place):
        _, _, _, _, values = DRAWN[_COUNT + place]
        with open(os.path.join(_HERE, FOLDER, values), "rb") as file:
            tensor = torch.frombuffer(bytearray(file.read()), dtype=_DTYPES[_COUNT + place])
        return tensor.reshape(SHAPES[0][0][_COUNT + place])

    def _kept_differ(states):
        """The first table or mask whose values are not those that the kernel was verified with."""
        for place, name in _KEPT:
            if states[place].device.type != "meta" and not torch.equal(states[place].detach().cpu(), _kept_value(place)):
                return _STATES[name]
        return None

    def _described(value):
        """As the importer describes an attribute (env/import/origin.py): None for what is not compared."""
        if value is None or isinstance(value, (bool, int, float, str)):
            return repr(value)
        if isinstance(value, (tuple, list)) and all(v is None or isinstance(v, (bool, int, float, str)) for v in value):
            return repr(tuple(value))
        if isinstance(value, torch.dtype):
            return str(value)
        if isinstance(value, torch.Tensor) and value.device.type != "meta" and value.numel() <= 1 << 20:
            data = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
            return f"{value.dtype} {tuple(value.shape)} {hashlib.sha256(data).hexdigest()[:16]}"
        if inspect.isfunction(value) or inspect.isbuiltin(value):
            return value.__qualname__
        return None

    def _difference(module):
        """The first attribute or part of the module that is not as the kernel was made for it; None: there is none."""
        expected, classes = _ORIGIN["attributes"], _ORIGIN["classes"]
        parts = dict(module.named_modules())
        for path, name in classes.items():
            if path not in parts or (path and type(parts[path]).__name__ != name):
                return f"part {path}"
            if parts[path]._forward_hooks or parts[path]._forward_pre_hooks:
                if path:
                    return f"the hook of part {path}"
        if len(parts) != len(classes):
            return "the list of parts"
        for path, part in parts.items():
            for name, value in vars(part).items():
                described = None if name.startswith("_") or name == "training" else _described(value)
                key = f"{path}.{name}" if path else name
                if described is not None and expected.get(key) not in (None, described):
                    return f"{key} = {described} (the kernel was made for {expected[key]})"
        return None

    class _DropIn(Original):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self._kevin_check()

        def _kevin_check(self):
            """Once, and again after every attribute that is set: whether this module is the one that was optimized."""
            difference = _difference(self)
            if difference is None and _KEPT:
                try:
                    differing = _kept_differ(_states_of(self))
                    difference = differing and f"the values of {differing}"
                except (KeyError, RuntimeError):
                    difference = "its tensors"
            self.__dict__["_kevin_difference"] = difference
            self.__dict__["_kevin_states"] = None
            if BLOCK_OFFSETS is not None and difference is None:
                self._kevin_flatten()

        def __setattr__(self, name, value):
            super().__setattr__(name, value)
            if "_kevin_difference" in self.__dict__:
                self._kevin_check()

        def _load_from_state_dict(self, *args, **kwargs):
            super()._load_from_state_dict(*args, **kwargs)
            if "_kevin_difference" in self.__dict__:
                self._kevin_check()

        def _apply(self, *args, **kwargs):
            result = super()._apply(*args, **kwargs)
            if "_kevin_difference" in self.__dict__:
                self._kevin_check()  # .to() changes tensors in place, and their values with their type
            return result

        def __getstate__(self):
            return {**self.__dict__, "_kevin_states": None}

        def _kevin_valid(self, states):
            """Whether the kernel takes the module's tensors; remembered until one of them is replaced."""
            shapes = tuple(tuple(s.shape) for s in states)
            valid = shapes in _STATE_SHAPES and all(
                s.dtype is dtype and s.is_contiguous() and type(s) in _TENSOR_CLASSES and
                (s.is_cuda if DEVICE == "cuda" else s.is_cpu) for s, dtype in zip(states, _DTYPES[_COUNT:]))
            self.__dict__["_kevin_states"] = (list(states), valid)
            return valid

        def _kevin_flatten(self):
            """Lays the parameters out as the kernel takes them; here and not in a call, which others may make meanwhile."""
            try:
                states = _states_of(self)
            except KeyError:
                return
            if not self._kevin_valid(states):
                return
            first = FIRST_PARAMETER - _COUNT
            views = flatten_parameters(states[first:], shape_of_states(states))
            for state, view in zip(states[first:], views):
                state.data = view
            self.__dict__["_kevin_states"] = None

        def _kevin_original(self, kind, reason, args, kwargs):
            _warn(kind, reason, 5)  # below two frames of torch.nn.Module
            return Original.forward(self, *args, **kwargs)

        def forward(self, *args, **kwargs):
            if _is_compiling():
                return self._kevin_traced(args, kwargs)
            tensors, given, why, own = args, args, None, self.__dict__
            if kwargs or not _PLAIN or len(args) != _COUNT:
                tensors, given, reason = _bound((self,), args, kwargs)
                why = reason and ("arguments", reason)
            if why is None:
                kind = _obstacle(tensors)
                if kind is not None:
                    if kind in _warned:
                        return Original.forward(self, *args, **kwargs)
                    why = (kind, _reason(kind, tensors))
            if why is None and own["_kevin_difference"] is not None:
                why = ("module", f"it differs in {own['_kevin_difference']}")
            if why is None and own["training"] != _TRAINING:
                why = ("mode", f"the module is in {'training' if own['training'] else 'evaluation'} mode")
            if why is not None:
                return self._kevin_original(*why, args, kwargs)
            try:
                states = _states_of(self)
            except KeyError:
                return self._kevin_original("state", "its tensors are not those of the original", args, kwargs)
            known = own["_kevin_states"]
            if known is None or not all(map(operator.is_, states, known[0])):
                valid = self._kevin_valid(states)
            else:
                valid = known[1]
            if not valid:
                return self._kevin_original("state", "its parameters have another shape, dtype, device or layout", args, kwargs)
            if _is_grad_enabled() and (_needs_gradient(tensors) or _needs_gradient(states)):
                return self._kevin_original(*_GRADIENT, args, kwargs)
            outputs = _FORWARD(*tensors, *states)
            return outputs if _ONE_OUTPUT else _result(outputs, tensors, given)

        def _kevin_traced(self, args, kwargs):
            """The same for torch.compile and torch.export, without warnings and memory."""
            tensors, given, reason = args, args, None
            if kwargs or not _PLAIN or len(args) != _COUNT:
                tensors, given, reason = _bound((self,), args, kwargs)
            fits = reason is None and self._kevin_difference is None and self.training == _ORIGIN["training"] \
                and not torch.is_autocast_enabled(DEVICE)
            if fits:
                states = _states_of(self)
                fits = _takes(tensors, states)
            if not fits:
                return Original.forward(self, *args, **kwargs)
            return _result(_FORWARD(*tensors, *states), tensors, given)

    def shape_of_states(states):
        """The first shape in SHAPES whose parameters have these extents."""
        shapes = [tuple(s.shape) for s in states]
        return next(i for i, (inputs, _) in enumerate(SHAPES) if list(inputs[_COUNT:]) == shapes)

    def use_in(model, original=Original):
        """Lets the modules of class `original` in `model` use the kernel where it fits; returns how many there are. For
        a model that is already built from the user's own class."""
        found = [module for module in model.modules() if type(module) is original]
        for module in found:
            module.__class__ = _DropIn
            module._kevin_check()
        return len(found)

    _DropIn.__name__ = _CLASS_NAME.rpartition(".")[2]
    _DropIn.__qualname__ = _DropIn.__name__
    _DropIn.__doc__ = Original.__doc__
    globals()[_DropIn.__name__] = _DropIn

else:

    def _function(*args, **kwargs):
        tensors, given, why = args, args, None
        if kwargs or not _PLAIN or len(args) != _COUNT:
            tensors, given, reason = _bound((), args, kwargs)
            why = reason and ("arguments", reason)
        if torch.compiler.is_compiling():
            if why is None and not torch.is_autocast_enabled(DEVICE) and _takes(tensors, []):
                return _result(_FORWARD(*tensors), tensors, given)
            return Original(*args, **kwargs)
        if why is None:
            kind = _obstacle(tensors)
            why = kind and (kind, _reason(kind, tensors))
        if why is None and torch.is_grad_enabled() and _needs_gradient(tensors):
            why = _GRADIENT
        if why is not None:
            _warn(*why, 2)
            return Original(*args, **kwargs)
        return _result(_FORWARD(*tensors), tensors, given)

    functools.update_wrapper(_function, Original)
    _function.__module__ = __name__
    globals()[_CLASS_NAME.rpartition(".")[2]] = _function
