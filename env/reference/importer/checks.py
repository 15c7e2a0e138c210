"""Whether a draft's text answers as the module does, and the module as it does itself."""

import random
import sys
import types

import torch
from torch._dispatch.python import enable_python_dispatcher

from .draft import value_of
from .refusals import Refusal, first_line, refuse_raised
from .values import draw

COMPARED_BYTES = 256 << 20  # at full size, on inputs as the person's file draws them
COMPARED_OPERATIONS = 5e10
MOST_COMPARED_BYTES = 2 << 30  # where nothing smaller can be had
MOST_COMPARED_OPERATIONS = 3e11
TOLERANCE = 1e-4  # of the result's magnitude, in float32: the order of additions may differ


class DoesNotHold(Exception):
    """At these sizes the module raises or the text says something else."""

    def __init__(self, refusal):
        super().__init__(str(refusal))
        self.refusal = refusal


def compiled(text):
    """As C++ compiles it: `torch` is the ATen operators and nothing else."""
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
    magnitude = float(theirs[theirs.isfinite()].abs().amax()) if bool(theirs.isfinite().any()) else 0.0
    difference = torch.where(ours == theirs, 0.0, ours - theirs).nan_to_num(0.0)
    return bool((difference.abs() <= TOLERANCE * magnitude).all())


def seed_everything(seed):
    torch.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)


def plain_attributes(module):
    """What a forward that counts or caches may change."""
    return {f"{prefix}.{name}".lstrip("."): value for prefix, part in module.named_modules()
            for name, value in vars(part).items() if value is None or isinstance(value, (bool, int, float, str))}


def steady_answers(draft, inputs, parameters):
    """The module's answers, if they follow from its inputs and weights alone."""
    def run(seed):
        seed_everything(seed)
        return draft.answers_of_module(inputs, parameters)

    before = plain_attributes(draft.case.module)
    first = [t.clone() for t in run(1)]
    if not all(same(a, b, exactly=True) for a, b in zip(run(1), first)):
        after = plain_attributes(draft.case.module)
        changed = [name for name, value in after.items() if before.get(name, None) != value]
        what = f" (`self.{changed[0]}` changes)" if changed else ""
        raise Refusal(f"its forward keeps something from call to call{what}: two calls on the same inputs differ",
                      "a problem has no memory: take counters, caches and clocks out of forward, or make what is kept "
                      "an input")
    if not all(same(a, b, exactly=True) for a, b in zip(run(2), first)):
        raise Refusal("its forward draws random numbers (Python's or numpy's): with another seed it answers otherwise",
                      "make what is drawn an input, or draw it once in __init__")
    return first


def compare(draft, function, inputs, parameters):
    """Refuses what no size would mend; raises DoesNotHold for what may be due to these sizes."""
    versions = [t._version for t in inputs]
    with torch.no_grad():
        try:
            theirs = steady_answers(draft, inputs, parameters)
        except Refusal:
            raise
        except Exception as error:
            try:
                refuse_raised("forward", error)
            except Refusal as refusal:
                raise DoesNotHold(refusal) from error
        if [t._version for t in inputs] != versions:
            raise Refusal("forward writes into one of its inputs",
                          "write into a new tensor (no inplace=True on an input): candidates' inputs are read-only")
        try:
            ours = draft.answers_of_text(function, inputs, parameters)
        except RuntimeError as error:
            raise DoesNotHold(Refusal("the text made of its graph raises: " + first_line(error))) from error
    if len(ours) != len(theirs) or not all(same(a, b, exactly=False) for a, b in zip(ours, theirs)):
        raise DoesNotHold(Refusal("what was traced of its forward gives other answers on other inputs",
                                  "its control flow or a constant depends on values, or on whether it is being traced: "
                                  "keep forward to tensor operations"))


def compare_with_drawn(draft, function, sizes):
    torch.manual_seed(3)
    inputs = [draw(draft.specs[n], draft.concrete(n, sizes), value_of(n).dtype) for n in draft.graph.inputs]
    parameters = [draw(draft.specs[n], draft.concrete(n, sizes), value_of(n).dtype) for n in draft.parameters]
    compare(draft, function, inputs, parameters)


def compare_with_fresh(draft, function):
    fresh = draft.case.fresh()
    if fresh is None:  # example inputs: nothing draws others
        compare_with_drawn(draft, function, draft.sizes.full)
    else:
        parameters = [draft.graph.state_value(n) for n in draft.parameters]
        compare(draft, function, [t for t in fresh if isinstance(t, torch.Tensor)], parameters)


class Checks:
    """What was compared of a draft. `small` is a size set for small CPUs at which the text holds, or None."""

    def __init__(self, draft):
        self.draft, self.function = draft, compiled(draft.text)
        self.compared, self.small, self.why_not = False, None, None
        self.known_legal = {}
        self.candidates, self.too_large = self._candidates()

    def run(self):
        """At full size where that is affordable, and at small."""
        draft = self.draft
        if self._affordable(draft.sizes.full, COMPARED_BYTES, COMPARED_OPERATIONS) and not draft.case.recorder.skipped:
            try:
                compare_with_fresh(draft, self.function)
            except DoesNotHold as problem:
                raise problem.refusal from problem
            self.compared = True
        self.small = next((sizes for sizes in self.candidates if self._holds(sizes)), None)

    def compare_beyond_small(self):
        """At the least size that can be had, if nothing was compared yet. Whether something was."""
        for sizes in [] if self.compared else [*self.too_large, self.draft.sizes.full]:
            if self._affordable(sizes, MOST_COMPARED_BYTES, MOST_COMPARED_OPERATIONS) and self._holds(sizes):
                break
        return self.compared

    def _candidates(self):
        """Size sets for a small CPU, and those that are still too large for one."""
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
        """Tried with tensors that have no values."""
        draft = self.draft
        inputs, parameters = ([torch.empty(draft.concrete(n, sizes), dtype=value_of(n).dtype, device="meta") for n in nodes]
                              for nodes in (draft.graph.inputs, draft.parameters))
        try:
            with enable_python_dispatcher():  # for recurrent.py
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
            compare_with_drawn(self.draft, self.function, sizes)
        except DoesNotHold as problem:
            self.why_not = problem.refusal
            if self.draft.job.get("small"):
                raise problem.refusal from problem
            return False
        self.compared = True
        return True
