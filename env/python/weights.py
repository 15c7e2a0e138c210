"""The weights of a candidate. Its parameters and buffers are matched with the problem's and hold those of the slot in every
call; values that it drew at its construction are never used.

A candidate may keep its weights in another form than that of the problem: transposed, packed, folded. Then its own tensors
are of no use, and it is constructed anew for each call, with the weights of the slot in place of what its layers draw. That
takes part in its time: weights are new in every call, so their packing is work of every call.

A candidate may register none of them and rely on KernelBench's seed: constructed under the seed of Model it draws what Model
drew. It too is constructed for each call. In place of what its constructor draws it gets the numbers from which Model's
text makes the weights of the call, by shape and order. There is no seed to know: what was drawn before or elsewhere is
not the weights of any call. A drawing in another shape has the same numbers in the same order, as under a seed.
"""

import ast
import contextlib
import math

import torch
from torch.utils._python_dispatch import TorchDispatchMode

CLOSE = 1e-3  # of the largest value: two ways to the same output


class Unmatched(Exception):
    """Weights of the problem have no place in the candidate; the text has both lists."""


def warm_up(threads):
    torch.nn.BatchNorm2d(2)
    torch.nn.LayerNorm(2)
    torch.manual_seed(threads)


def plain(name):
    return name.replace(".", "_").lower()


def listed(entries):
    return ", ".join(f"{name} {list(shape)}" for name, shape in entries) or "none"


def is_running(name):
    return plain(name).endswith(("running_mean", "running_var"))


def match(wanted, own):
    """For each wanted (names, shape) the index in `own` (name, shape) of its holder: by name, else in order and by shape.
    None: there is none. A layer's running statistics, which it writes, hold no other weight."""
    holders, used = [None] * len(wanted), set()
    for i, (names, shape) in enumerate(wanted):
        for j, (name, own_shape) in enumerate(own):
            if j not in used and own_shape == shape and plain(name) in names:
                holders[i] = j
                used.add(j)
                break
    for i, (names, shape) in enumerate(wanted):
        if holders[i] is not None:
            continue
        is_statistic = any(is_running(name) for name in names)
        j = next((j for j, (name, own_shape) in enumerate(own)
                  if j not in used and own_shape == shape and is_running(name) == is_statistic), None)
        if j is not None:
            holders[i] = j
            used.add(j)
    return holders


def state_of(module):
    """Its parameters and then its floating buffers, each once: (name, tensor)."""
    seen, entries = set(), []
    buffers = [(name, buffer) for name, buffer in module.named_buffers() if buffer.is_floating_point()]
    for name, tensor in list(module.named_parameters()) + buffers:
        if id(tensor) not in seen:
            seen.add(id(tensor))
            entries.append((name, tensor))
    return entries


@contextlib.contextmanager
def on_registration(hook):
    handle = torch.nn.modules.module.register_module_parameter_registration_hook(hook)
    try:
        yield
    finally:
        handle.remove()


# Random operators of a constructor: name to whether they draw from an interval.
DRAWS = {"aten::rand": True, "aten::rand_like": True, "aten::uniform_": True, "aten::randn": False,
         "aten::randn_like": False, "aten::normal": False, "aten::normal_": False}


class Draws(TorchDispatchMode):
    """What is drawn while it is active: `drawn` has (whether uniform, shape) of each. `placed` maps the number of a
    drawing to the standard values that take its place. Tensors with an address in `kept` keep their values."""

    def __init__(self, placed=None, kept=()):
        super().__init__()
        self.placed, self.kept, self.drawn = placed or {}, kept, []

    @classmethod
    def _should_skip_dynamo(cls):
        """Else the first use of a mode imports torch's compiler, which takes 5 s in a worker on a GPU. It compiles nothing here."""
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func._schema.name
        if name not in DRAWS:
            return func(*args, **kwargs)
        if name.endswith("_") and args[0].data_ptr() in self.kept:
            return args[0]
        out = func(*args, **kwargs)
        values = self.placed.get(len(self.drawn))
        self.drawn.append((DRAWS[name], tuple(out.shape)))
        if values is not None:
            out.copy_(self.scaled(name, values.reshape(out.shape), args, kwargs))
        return out

    @staticmethod
    def scaled(name, values, args, kwargs):
        """The two numbers, or tensors, of uniform_(from, to), normal_(mean, std) and normal(mean, std)."""
        of_two = list(args[:2] if name == "aten::normal" else args[1:3])
        if name == "aten::uniform_":
            low, high = of_two + [kwargs.get("from", 0.0), kwargs.get("to", 1.0)][len(of_two):]
            return values * (high - low) + low
        if name in ("aten::normal", "aten::normal_"):
            mean, std = of_two + [kwargs.get("mean", 0.0), kwargs.get("std", 1.0)][len(of_two):]
            return values * std + mean
        return values


def standard(values, spec):
    """The numbers in [0, 1), or of mean 0 and deviation 1, that Model's text turns into these weights."""
    return (values.float() - spec["draw"]["at"]) / (spec["draw"]["width"] or 1)


@contextlib.contextmanager
def nothing_drawn(kept=None):
    """Layers keep the values that their parameters have. With `kept` functions of torch.nn.init change all tensors but
    those with an address in it."""
    saved = []

    def replace(owner, name, value):
        saved.append((owner, name, owner.__dict__[name]))
        setattr(owner, name, value)

    for cls in {cls for cls in vars(torch.nn).values() if isinstance(cls, type)}:
        if "reset_parameters" in cls.__dict__:
            replace(cls, "reset_parameters", lambda self: None)

    def keeping(function):
        def initialise(tensor, *args, **kwargs):
            return tensor if kept is None or tensor.data_ptr() in kept else function(tensor, *args, **kwargs)
        return initialise

    for name in [name for name in vars(torch.nn.init) if name.endswith("_") and not name.startswith("_")]:
        replace(torch.nn.init, name, keeping(getattr(torch.nn.init, name)))
    try:
        yield
    finally:
        for owner, name, value in reversed(saved):
            setattr(owner, name, value)


class Candidate:
    """The class ModelNew with its arguments, and what it registers on the way."""

    def __init__(self, model, job):
        self.model, self.init = model, ast.literal_eval(job["init"])
        self.dtype = None if job["precision"] == "float32" else getattr(torch, job["precision"])
        self.device = job.get("device", "cpu")
        self.registered = []

    def construct(self):
        torch.manual_seed(42)
        module = self.model(*self.init)
        if self.device != "cpu":
            module = module.to(self.device)
        return module if self.dtype is None else module.to(self.dtype)

    def construct_recorded(self):
        def record(_, name, param):
            self.registered.append((name, tuple(param.shape) if param is not None else ()))

        with on_registration(record):
            return self.construct()

    def construct_with(self, weights, drawn=None):
        """`weights`: the number of a registration to its values. With `drawn`, a Draws, drawings have values too."""
        count = iter(range(1 << 30))
        kept = set()

        def place(_, name, param):
            values = weights.get(next(count))
            if values is None or param is None:
                return None
            param.data = values.clone()
            kept.add(param.data_ptr())
            return param

        if drawn is None:
            with nothing_drawn(), on_registration(place):
                return self.construct()
        if not weights:
            with drawn:
                return self.construct()
        drawn.kept = kept
        with nothing_drawn(kept), on_registration(place), drawn:
            return self.construct()

    def drawings_with(self, places, specs):
        """What the constructor draws beside the registrations `places`: (whether uniform, shape) of each."""
        drawn = Draws()
        self.construct_with({place: torch.randn(spec["shape"]).to(getattr(torch, spec["dtype"]))
                             for place, spec in zip(places, specs) if place is not None}, drawn)
        return drawn.drawn


class Rebuilt:
    """Called like a module: constructs the candidate with the weights of the call, and calls it. For each weight
    `places` has the number of a registration, or `drawings` that of a drawing."""

    def __init__(self, candidate, places, specs=(), drawings=None):
        self.candidate, self.places, self.specs, self.drawings = candidate, places, specs, drawings
        self.weights = [torch.nn.Parameter(torch.zeros(()), requires_grad=False) for _ in places]

    def __call__(self, *inputs):
        weights = {place: holder.data for place, holder in zip(self.places, self.weights) if place is not None}
        if self.drawings is None:
            return self.candidate.construct_with(weights)(*inputs)
        placed = {at: standard(holder.data, spec)
                  for at, holder, spec in zip(self.drawings, self.weights, self.specs) if at is not None}
        return self.candidate.construct_with(weights, Draws(placed))(*inputs)


def match_drawings(specs, places, drawn):
    """For each weight without a place the number of a drawing of its kind, in order: of its shape, else of as many values.
    None: there is none."""
    drawings, used = [None] * len(specs), set()
    for alike in (tuple, math.prod):
        for i, (spec, place) in enumerate(zip(specs, places)):
            if place is not None or drawings[i] is not None or "draw" not in spec:
                continue
            wanted = (spec["draw"]["uniform"], alike(spec["shape"]))
            j = next((j for j, (uniform, shape) in enumerate(drawn)
                      if j not in used and (uniform, alike(shape)) == wanted), None)
            if j is not None:
                drawings[i] = j
                used.add(j)
    return drawings


def rebuilt_from_drawings(candidate, registered, specs):
    """All weights are drawn, as in Model, or else those that are not `registered`. (None, what it draws) where a weight has
    neither a place nor a drawing."""
    drawn = []
    for places in ([None] * len(specs), registered):
        drawn = candidate.drawings_with(places, specs)
        drawings = match_drawings(specs, places, drawn)
        if all(place is not None or at is not None for place, at in zip(places, drawings)):
            return Rebuilt(candidate, places, specs, drawings), drawn
    return None, drawn


def sample_inputs(job):
    import caller
    slot = []
    for spec in job["tensors"]:
        dtype = getattr(torch, spec["dtype"])
        floating = dtype.is_floating_point
        slot.append(torch.randn(spec["shape"]).to(dtype) if floating else torch.zeros(spec["shape"], dtype=dtype))
    slot = [values.to(job.get("device", "cpu")) for values in slot]
    return caller.arguments_of(job, slot)


def agree(one, other):
    ones, others = ((each,) if isinstance(each, torch.Tensor) else tuple(each) for each in (one, other))
    for a, b in zip(ones, others):
        a, b = a.double(), b.double()
        largest = float(b.abs().nan_to_num(0, 0, 0).amax()) if b.numel() else 0.0
        if float((a - b).abs().nan_to_num(0, 0, 0).amax() if a.numel() else 0.0) > CLOSE * largest:
            return False
    return True


def keeps_own_form(module, holders, rebuilt, specs, job):
    """Whether the output follows from weights that are not in the matched tensors: whether the candidate gives another
    output when it is constructed with the same weights. The second time, with other weights, shows what a module keeps of
    its first call."""
    device = job.get("device", "cpu")
    generator = torch.Generator()  # a construction sets the seed of the common one
    for _ in range(2):
        drawn = [torch.randn(spec["shape"], generator=generator).mul_(0.1).to(device, getattr(torch, spec["dtype"]))
                 for spec in specs]
        inputs = sample_inputs(job)
        outputs = []
        for called, places in ((module, holders), (rebuilt, rebuilt.weights)):
            for holder, values in zip(places, drawn):
                holder.data = values
            torch.manual_seed(1)
            try:
                outputs.append(called(*inputs))
            except Exception:  # told where it is called for a verdict
                return False
        try:
            if not agree(*outputs):
                return True
        except Exception:
            return False
    return False


def build(model, job):
    """(what is called, holders): for each weight of the problem the tensor that holds it in a call, or None."""
    candidate = Candidate(model, job)
    module = candidate.construct_recorded()
    specs = [spec for spec in job["tensors"] if spec["param"] and not spec["stored"]]
    wanted = [({plain(spec["name"]), plain(spec["state_name"])}, tuple(spec["shape"])) for spec in specs]
    entries = state_of(module)
    own = [(name, tuple(tensor.shape)) for name, tensor in entries]
    found, places = match(wanted, own), match(wanted, candidate.registered)
    rebuilt = None if None in places or not specs else Rebuilt(candidate, places)
    if None in found and rebuilt is None:
        rebuilt, drawn = rebuilt_from_drawings(candidate, places, specs)
    if None in found and rebuilt is None:
        missing = [(spec["name"], spec["shape"]) for spec, at in zip(specs, found) if at is None]
        shapes = ", ".join(str(list(shape)) for _, shape in drawn) or "nothing"
        raise Unmatched(f"ModelNew has no place for these weights of the problem: {listed(missing)}; "
                        f"its parameters and buffers are: {listed(own)}; its constructor draws: {shapes}. Register each "
                        "as an nn.Parameter of this shape under the name that it has in Model")
    if None in found:
        called, held = rebuilt, rebuilt.weights
    else:
        called, held = module, [entries[at][1] for at in found]
        if rebuilt is not None and keeps_own_form(module, held, rebuilt, specs, job):
            called, held = rebuilt, rebuilt.weights
    held = iter(held)
    return called, [None if spec["stored"] else next(held) for spec in job["tensors"] if spec["param"]]
