"""Checks that the text of a draft computes the same as the module, and that the module is deterministic."""

import random
import sys
import types

import torch
from torch._dispatch.python import enable_python_dispatcher

from .dynamic import SET, shapes_of
from .draft import Draft, value_of
from .graph import unchanged
from .refusals import Refusal, first_line, place_of_chance, refuse_raised
from .values import draw

COMPARED_BYTES = 256 << 20  # at full size, on inputs of the user's file
COMPARED_OPERATIONS = 5e10
MOST_COMPARED_BYTES = 2 << 30  # if no smaller size is possible
MOST_COMPARED_OPERATIONS = 3e11
# Of the result's magnitude: the order of additions may differ. In 16 bits about 4 units in the last place.
TOLERANCES = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 3e-2}


class DoesNotHold(Exception):
    """At these sizes the module raises, or the text computes something else."""

    def __init__(self, refusal):
        super().__init__(str(refusal))
        self.refusal = refusal


def compiled(text):
    """Compiles it as C++ does: `torch` has the ATen operators only."""
    namespace, table = types.ModuleType("torch"), torch.jit._builtins._get_builtin_table()
    for schema in torch._C._jit_get_all_schemas():
        family, _, name = schema.name.partition("::")
        if family == "aten" and not hasattr(namespace, name):
            stand_in = types.SimpleNamespace()
            setattr(namespace, name, stand_in)
            table[id(stand_in)] = schema.name
    unit = torch.jit.CompilationUnit()
    try:
        unit.define(text, rcb=lambda name: namespace if name == "torch" else None)
    except Exception as error:
        raise Refusal("the text made of its graph is no TorchScript: " + first_line(error),
                      "use other operators for what the message names") from error
    return unit.forward


def same(ours, theirs, exactly):
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return False
    if exactly or not ours.is_floating_point():
        return bool(torch.equal(ours.nan_to_num(), theirs.nan_to_num()))
    tolerance, ours, theirs = TOLERANCES[ours.dtype], ours.float(), theirs.float()
    magnitude = float(theirs[theirs.isfinite()].abs().amax()) if bool(theirs.isfinite().any()) else 0.0
    difference = torch.where(ours == theirs, 0.0, ours - theirs).nan_to_num(0.0)
    return bool((difference.abs() <= tolerance * magnitude).all())


def seed_everything(seed):
    torch.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)


def plain_attributes(module):
    """The attributes that a forward which counts or caches may change."""
    return {f"{prefix}.{name}".removeprefix("function.").lstrip("."): value for prefix, part in module.named_modules()
            for name, value in vars(part).items() if value is None or isinstance(value, (bool, int, float, str))}


def steady_answers(draft, inputs, parameters):
    """The outputs of the module; refused if they depend on more than its inputs and weights."""
    def run(seed):
        seed_everything(seed)
        return draft.answers_of_module(inputs, parameters)

    def differs(answers):
        return not all(same(a, b, exactly=True) for a, b in zip(answers, first))

    before = plain_attributes(draft.case.module)
    answers = run(1)
    first = [t.clone() for t in answers]
    if differs(run(1)):
        after = plain_attributes(draft.case.module)
        changed = [name for name, value in before.items() if name not in after or after[name] != value]
        if changed:
            raise Refusal(f"its forward keeps something from call to call (self.{changed[0]} changes): two calls on the "
                          "same inputs differ", "a problem has no state: make the stored value an input of forward")
        raise Refusal("its forward is not deterministic: two calls on the same inputs differ, with the same seeds",
                      "take clocks, counters and random generators of its own out of forward")
    if differs(run(2)):
        place = place_of_chance(lambda: run(2), draft.case.folder)
        raise Refusal(f"its forward draws random numbers (Python's or numpy's){place}: with another seed it answers otherwise",
                      "make what is drawn an input of forward, or draw it once in __init__")
    return first


def tried(what, call):
    """The result of `call`; an exception may be due to the sizes."""
    try:
        with torch.no_grad():
            return call()
    except Refusal:
        raise
    except Exception as error:
        try:
            refuse_raised(what, error)
        except Refusal as refusal:
            raise DoesNotHold(refusal) from error


def compare(draft, function, inputs, others, parameters):
    """Compares on `inputs` and then on `others`, which reveals state kept from the first call. Raises Refusal for an
    error at every size, DoesNotHold for one that may be due to these sizes."""
    for given, module in ((inputs, steady_answers), (others, Draft.answers_of_module)):
        versions = [t._version for t in given]
        theirs = tried("forward", lambda: module(draft, given, parameters))
        if [t._version for t in given] != versions:
            raise Refusal("forward writes into one of its inputs, and the trace does not show it",
                          "write into a new tensor (no inplace=True on an input)")
        ours = tried("the text made of its graph", lambda: draft.answers_of_text(function, given, parameters))
        if len(ours) != len(theirs) or not all(same(a, b, exactly=False) for a, b in zip(ours, theirs)):
            raise DoesNotHold(Refusal("what was traced of its forward gives other answers on other inputs",
                                      "tracing froze a value: it depends on what a tensor holds, on an earlier call or on "
                                      "being traced; keep forward to tensor operations"))


def drawn(draft, nodes, sizes):
    return [draw(draft.specs[n], draft.concrete(n, sizes), value_of(n).dtype) for n in nodes]


def compare_with_drawn(draft, function, sizes):
    torch.manual_seed(3)
    inputs, others = (drawn(draft, draft.graph.inputs, sizes) for _ in range(2))
    compare(draft, function, inputs, others, drawn(draft, draft.parameters, sizes))


def compare_with_fresh(draft, function):
    inputs, others = draft.case.fresh(2), draft.case.fresh(3)
    if inputs is None:  # example inputs: there is no generator for others
        compare_with_drawn(draft, function, draft.sizes.full)
        return
    compare(draft, function, inputs, others, [draft.graph.state_value(n) for n in draft.parameters])


class Checks:
    """The comparisons of a draft. `small`: a size set for small CPUs at which the text is correct, or None."""

    def __init__(self, draft):
        self.draft, self.function = draft, compiled(draft.text)
        self.compared, self.small, self.why_not = False, None, None
        self.known_legal = {}
        self.candidates, self.too_large = self._candidates()

    def run(self):
        """Compares at full size where it is affordable, and at small."""
        draft = self.draft
        if self._affordable(draft.sizes.full, COMPARED_BYTES, COMPARED_OPERATIONS) and not draft.case.recorder.skipped:
            try:
                with unchanged(draft.case.module):
                    compare_with_fresh(draft, self.function)
            except DoesNotHold as problem:
                raise problem.refusal from problem
            self.compared = True
        self.small = next((sizes for sizes in self.candidates if self._holds(sizes)), None)

    def compare_beyond_small(self):
        """Compares at the smallest possible size if nothing was compared yet. Returns whether anything was compared."""
        for sizes in [] if self.compared else [*self.too_large, self.draft.sizes.full]:
            if self._affordable(sizes, MOST_COMPARED_BYTES, MOST_COMPARED_OPERATIONS) and self._holds(sizes):
                break
        return self.compared

    def given_shapes(self):
        """The shapes of --shape and --dynamic with all sizes, and notes on them; refused if the text is incorrect at one."""
        shapes, notes, full = [], [], self.draft.sizes.full
        for shape in [*(self.draft.job.get("shapes") or []), *shapes_of(self.draft)]:
            option = f"--shape {shape['set']}: " if shape["set"] != SET else "the range of its sizes: "
            unknown = [name for name in shape["symbols"] if name not in full]
            if unknown:
                raise Refusal(f"{option}`{unknown[0]}` is no size of this module that may vary",
                              "these may: " + ", ".join(full) if full else
                              "none may: write forward without sizes as constants (x.shape[0], not 64)")
            sizes = {**full, **shape["symbols"]}
            at = ", ".join(f"{name} = {value}" for name, value in sizes.items())
            if not self._legal(sizes):
                raise Refusal(f"{option}its forward does not take {at}", "choose other sizes")
            if not self._affordable(sizes, COMPARED_BYTES, COMPARED_OPERATIONS):
                notes.append(f"not compared with the module at {at}: too large for that here")
            elif not self._holds(sizes):
                raise Refusal(f"{option}at {at}: {self.why_not}", self.why_not.next_step)
            shapes.append({**shape, "symbols": sizes})
        return shapes, notes

    def _candidates(self):
        """Size sets for a small CPU, and size sets that are still too large."""
        small, fits = self.draft.small_sizes(self._legal), lambda sizes: self.draft.sizes.fits(self.draft.traffic, sizes)
        if self.draft.job.get("small"):
            return small, []
        return [s for s in small if fits(s)], [s for s in small if not fits(s)]

    def _legal(self, sizes):
        key = tuple(sizes.values())
        if key not in self.known_legal:
            self.known_legal[key] = self._takes_shapes(sizes)
        return self.known_legal[key]

    def _takes_shapes(self, sizes):
        """Runs the text on tensors without values."""
        draft = self.draft
        inputs, parameters = ([torch.empty(draft.concrete(n, sizes), dtype=value_of(n).dtype, device="meta") for n in nodes]
                              for nodes in (draft.graph.inputs, draft.parameters))
        try:
            with enable_python_dispatcher():  # for the shapes of recurrent layers (graph.py)
                draft.answers_of_text(self.function, inputs, parameters, device="meta")
        except (RuntimeError, NotImplementedError):
            return False
        return True

    def _affordable(self, sizes, most_bytes, most_operations):
        at = self.draft.sizes.at
        return at(self.draft.traffic, sizes) <= most_bytes and at(self.draft.operations, sizes) <= most_operations

    def _holds(self, sizes):
        if sizes == self.draft.sizes.full and self.compared:
            return True
        try:
            with unchanged(self.draft.case.module):
                compare_with_drawn(self.draft, self.function, sizes)
        except DoesNotHold as problem:
            self.why_not = problem.refusal
            if self.draft.job.get("small"):
                raise problem.refusal from problem
            return False
        self.compared = True
        return True
