"""How a candidate of kind `modelnew` stands for the imported class: the arguments of its constructor and of forward, and the
names of its parameters. They become the table [model] of the problem file (env/problem/model_facts.h)."""

import inspect
import math
import re

from .arguments import constant

STATE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*")
MOST_VALUES, DEEPEST, LARGEST = 256, 4, 2**62


class NoFacts(Exception):
    """Why there are none: half a sentence."""


def value(given, what, depth=0):
    """Of a constructor or a call, as JSON: a number, a bool, {"tuple": [...]} or {"list": [...]}."""
    if isinstance(given, bool) or type(given) is float and math.isfinite(given):
        return given
    if type(given) is int and abs(given) < LARGEST:
        return given
    if isinstance(given, (tuple, list)) and depth < DEEPEST and len(given) <= MOST_VALUES:
        return {"tuple" if isinstance(given, tuple) else "list": [value(part, what, depth + 1) for part in given]}
    raise NoFacts(f"{what} is a {type(given).__name__}")


def constructor(case):
    """The values of all its arguments by position, and their names; the names may be unknown."""
    in_order, by_name = case.constructed
    try:
        bound = inspect.signature(type(case.target)).bind(*in_order, **by_name)
        bound.apply_defaults()
    except (TypeError, ValueError):
        if by_name:
            raise NoFacts("its constructor takes arguments by name only") from None
        return [value(given, f"argument {i + 1} of its constructor") for i, given in enumerate(in_order)], []
    if bound.kwargs:
        raise NoFacts("its constructor takes arguments by name only")
    names = [name for name, parameter in bound.signature.parameters.items()
             if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)]
    values = list(bound.args)
    if len(names) != len(values):
        names = [f"argument {i + 1}" for i in range(len(values))]
        return [value(given, f"{name} of its constructor") for name, given in zip(names, values)], []
    while len(values) > len(in_order) and names[len(values) - 1] not in by_name:
        values.pop()  # defaults stay the candidate's own
    return [value(given, f"argument `{name}` of its constructor") for name, given in zip(names, values)], names[:len(values)]


def forward(case, draft):
    """The arguments of forward by position: the name of an input, or a constant."""
    given = case.given
    if given.by_name:
        raise NoFacts("its forward is called with arguments by name")
    if any(view is not None for view in given.views):
        raise NoFacts("an input is a view of other memory")
    names, found = [draft.name(node) for node in draft.graph.inputs], []
    for name, structure in zip(given.argument_names, given.structures):
        if "tensor" in structure:
            found.append({"input": names[structure["tensor"]]})
        elif "value" in structure:
            found.append(value(constant(structure), f"input `{name}`"))
        else:
            raise NoFacts(f"input `{name}` holds several tensors")
    return found


def parameters(draft):
    """The problem's name of each parameter to that in state_dict()."""
    found = {}
    for node in draft.parameters:
        path = draft.graph.states[node].removeprefix("function.")
        if not STATE_NAME.fullmatch(path) or len(path) > 200:
            raise NoFacts(f"its tensor `{path}` has no name in state_dict()")
        found[draft.name(node)] = path
    return found


def sizes_that_fit(draft, sizes, shapes):
    """Where the parameters have the shapes of the module; None: at all sizes. A set of shapes under its name where all fit."""
    def fits(at):
        return all(draft.concrete(n, at) == draft.concrete(n, draft.sizes.full) for n in draft.parameters)

    found, everywhere = [name for name, at in sizes.items() if fits(at)], all(map(fits, sizes.values()))
    for name in dict.fromkeys(shape["set"] for shape in shapes):
        of_set = [fits(shape["symbols"]) for shape in shapes if shape["set"] == name]
        everywhere = everywhere and all(of_set)
        found += [name] if all(of_set) else [f"{name}/{i + 1}" for i, one in enumerate(of_set) if one]
    return None if everywhere else found


def model(case, draft, sizes, shapes):
    """The facts, or None; then a note says why. `sizes` and `shapes`: all of the problem's."""
    if not case.is_module or case.constructed is None:
        return None
    try:
        if not case.target.training:
            raise NoFacts("a ModelNew is constructed in training mode, and the module was imported in evaluation mode")
        init, arguments = constructor(case)
        facts = {"init": init, "arguments": arguments, "forward": forward(case, draft), "parameters": parameters(draft)}
        if draft.changed:
            raise NoFacts("its forward writes into its inputs")
    except NoFacts as why:
        case.notes.append(f"no kernel of kind modelnew can be judged for it: {why}")
        return None
    fits = sizes_that_fit(draft, sizes, shapes)
    states = dict(case.target.named_parameters())
    used = {draft.graph.states[node].removeprefix("function.") for node in [*draft.kept, *draft.parameters]}
    unused = [name for name in states if name not in used and STATE_NAME.fullmatch(name) and len(name) <= 200]
    return {**facts, "sizes": fits, "unused": unused}
