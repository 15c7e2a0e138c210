

# --- The drop-in: the class (or function) of the original, with the kernel where it fits ---

if isinstance(Original, type):

    class _DropIn(Original):
        @functools.wraps(Original.__init__, updated=())
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self._kevin_check()

        def _kevin_check(self, flatten=True):
            """Whether this module is the one that was optimized: once, and again after a change that is noticed."""
            own = self.__dict__
            memory = own.get("_kevin") or _Memory()
            difference = _difference(self) or _kept_difference(self)
            own["_kevin_difference"] = None if difference is None else (
                ("module", difference.partition(" = ")[0]), f"it differs in {difference}")
            own["_kevin"], own["_kevin_inside"] = memory, []
            if BLOCK_OFFSETS is not None and difference is None and flatten:
                self._kevin_flatten()
            own["_kevin_inside"] = memory.see(self)

        def __setattr__(self, name, value):
            super().__setattr__(name, value)
            if "_kevin" in self.__dict__ and name != "training":
                self._kevin_check()

        def __setstate__(self, state):
            super().__setstate__(state)
            self.__dict__.pop("_kevin", None)  # of what it was copied from
            self._kevin_check()

        def train(self, mode=True):
            result = super().train(mode)
            if "_kevin" in self.__dict__:
                self._kevin_check()
            return result

        def _load_from_state_dict(self, *args, **kwargs):
            super()._load_from_state_dict(*args, **kwargs)
            if "_kevin" in self.__dict__:
                self._kevin_check()

        def _apply(self, *args, **kwargs):
            result = super()._apply(*args, **kwargs)
            if "_kevin" in self.__dict__:
                self._kevin_check()  # .to() changes tensors in place, and their values with their type
            return result

        def _kevin_flatten(self):
            """Lays the parameters out as the kernel takes them; here and not in a call, which others may make meanwhile."""
            try:
                states = _states_of(self)
            except KeyError:
                return
            if _why_invalid(states) is not None:
                return
            first = FIRST_PARAMETER - _COUNT
            views = flatten_parameters(states[first:], shape_of_states(states))
            for state, view in zip(states[first:], views):
                state.data = view

        def _kevin_original(self, why, args, kwargs):
            if why[0] not in _warned:
                _warn(*why, 5)  # below two frames of torch.nn.Module
            return Original.forward(self, *args, **kwargs)

        @functools.wraps(Original.forward, updated=())
        def forward(self, *args, **kwargs):
            if _is_compiling():
                return self._kevin_traced(args, kwargs)
            tensors, given, why = args, args, None
            if kwargs or not _PLAIN or len(args) != _COUNT:
                tensors, given, why = _bound((self,), args, kwargs)
            if why is None:
                obstacle = _obstacle(tensors)
                if obstacle is not None:
                    if obstacle in _warned:
                        return Original.forward(self, *args, **kwargs)
                    why = (obstacle, _reason(obstacle, tensors))
                else:
                    why = self._kevin_why()
            if why is not None:
                return self._kevin_original(why, args, kwargs)
            try:
                states = _states_of(self)
            except KeyError:
                return self._kevin_original((("module", "tensors"), "its tensors are not those of the original"), args, kwargs)
            why = self._kevin_why_states(states)
            if why is None and _is_grad_enabled() and (_needs_gradient(tensors) or _needs_gradient(states)):
                why = _GRADIENT
            if why is None and _forward_ad._current_level >= 0 and _has_tangent([*tensors, *states]):
                why = _FORWARD_GRADIENT
            if why is not None:
                return self._kevin_original(why, args, kwargs)
            try:
                outputs = _FORWARD(*tensors, *states)
            except RuntimeError:
                why = self.__dict__["_kevin"].invalid = _why_invalid(states)  # .half() of a part changes its tensors in place
                if why is None:
                    raise
                return self._kevin_original(why, args, kwargs)
            return outputs if _ONE_OUTPUT else _result(outputs, tensors, given)

        def _kevin_why(self):
            """None, or (kind, reason) why the module is not the one that the kernel was made for."""
            own = self.__dict__
            if own["training"] is not _TRAINING:
                return ("mode", None), f"the module is in {'training' if own['training'] else 'evaluation'} mode"
            memory = own.get("_kevin")
            if memory is None or not memory.is_current():
                self._kevin_check(flatten=False)
            if (_global_forward_hooks or _global_forward_pre_hooks) and len(_ORIGIN["classes"]) > 1:
                return ("hooks", None), "a hook of all modules is registered, and the kernel calls no parts"
            return own["_kevin_difference"]

        def _kevin_why_states(self, states):
            """The same of its tensors."""
            memory = self.__dict__["_kevin"]
            why = memory.why_not(states)
            if why is None and not memory.is_kept(states):
                self._kevin_check(flatten=False)
                return self.__dict__["_kevin_difference"]
            return why

        def _kevin_traced(self, args, kwargs):
            """The same for torch.compile and torch.export, without warnings and memory."""
            tensors, given, why = args, args, None
            if kwargs or not _PLAIN or len(args) != _COUNT:
                tensors, given, why = _bound((self,), args, kwargs)
            if why is None and self._kevin_difference is None and self.training is _TRAINING \
                    and _parts_as_traced(self) and _inside_as_traced(self._kevin_inside):
                states = _states_of(self)
                if _takes(tensors, states):
                    return _result(_FORWARD(*tensors, *states), tensors, given)
            return Original.forward(self, *args, **kwargs)

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

    _DropIn.__doc__ = Original.__doc__
    _publish(_CLASS_NAME.rpartition(".")[2], _DropIn)

else:

    @functools.wraps(Original, updated=())
    def _function(*args, **kwargs):
        tensors, given, why = args, args, None
        if kwargs or not _PLAIN or len(args) != _COUNT:
            tensors, given, why = _bound((), args, kwargs)
        if _is_compiling():
            states = _states_of(None)
            if why is None and _takes(tensors, states):
                return _result(_FORWARD(*tensors, *states), tensors, given)
            return Original(*args, **kwargs)
        if why is None:
            obstacle = _obstacle(tensors)
            if obstacle is not None:
                if obstacle in _warned:
                    return Original(*args, **kwargs)
                why = (obstacle, _reason(obstacle, tensors))
            elif _is_grad_enabled() and _needs_gradient(tensors):
                why = _GRADIENT
            elif _forward_ad._current_level >= 0 and _has_tangent(tensors):
                why = _FORWARD_GRADIENT
        if why is not None:
            _warn(*why, 2)
            return Original(*args, **kwargs)
        return _result(_FORWARD(*tensors, *_states_of(None)), tensors, given)

    _publish(_CLASS_NAME.rpartition(".")[2], _function)
