"""One job: from a user's file or function to the parts of a problem file."""

import torch

from .arguments import DTYPES, FLOATS
from .case import case_of_file, case_of_function
from .checks import Checks
from .class_case import case_of_class
from .costs import families
from .draft import Draft, value_of
from .graph import export, export_with_weights, use_recurrent_shapes
from .model import model
from .origin import origin
from .refusals import ChangesState, Refusal, Unwritable, refuse_raised
from .sizes import numel
from .text import operator_name

LARGE_INDEX = 1 << 31


def draft_of(case, job, graphs):
    """The draft of the first graph whose shapes and operators can be written as text."""
    reason = None
    for graph in graphs:
        try:
            draft = Draft(case, graph, job)
            draft.measure()
            return draft
        except Unwritable as unwritable:
            reason = unwritable
        except ChangesState as change:
            raise Refusal(str(change), "make it an argument of forward (a cache that is passed in may be written into), or "
                                       "write into a new tensor: weights are drawn anew for each call") from change
    raise Refusal(f"its graph holds {reason}, which TorchScript text cannot say",
                  "use operators of torch itself (ATen) in forward")


def refuse_what_fails_anyway(case):
    """The file's own error is clearer than the tracer's."""
    if case.recorder.skipped:
        return
    try:
        with torch.no_grad():
            case.module(*case.tensors)
    except Exception as error:
        refuse_raised("forward", error)


def traced(case, job):
    try:
        return draft_of(case, job, export(case.module, case.tensors, case.folder))
    except Refusal:
        refuse_what_fails_anyway(case)
        raise


def checked(case, draft, job, say):
    """If the weights alone are too large for a small CPU, tries a trace in which their sizes vary."""
    say({"phase": "compare"})
    checks = Checks(draft)
    if checks.candidates:
        checks.run()
        if checks.small is not None:
            return checks
    else:
        say({"phase": "trace with weights of any size"})
        try:
            free = Checks(draft_of(case, job, export_with_weights(case.module, case.tensors, case.folder)))
            say({"phase": "compare"})
            free.run()
            if free.small is not None or free.compare_beyond_small():
                return free
        except Refusal:
            pass  # an error of the module itself is raised again below
        checks.run()
    checks.compare_beyond_small()
    return checks


def index_output(draft, node):
    """The check for an output that is the argmax or argmin of the first input; None for other outputs."""
    extreme = operator_name(node) in ("argmax", "argmin") and len(draft.outputs) == 1 and \
        node.args[0] is draft.graph.inputs[0] and len(node.args) > 1 and node.args[1] is not None
    if not extreme:
        return None
    return {"extreme_dim": node.args[1] % value_of(node.args[0]).dim(),
            "extreme_is_max": operator_name(node) == "argmax"}


def describe_outputs(draft):
    """The outputs, and the keys of the check that follow from them."""
    outputs, check = [], {}
    for node in draft.changed:
        if value_of(node).dtype not in FLOATS:
            raise Refusal(f"forward writes into `{draft.name(node)}` of dtype {str(value_of(node).dtype).removeprefix('torch.')}, "
                          "which cannot be checked", "write into float32, float16 or bfloat16")
    own = len(draft.outputs) - len(draft.changed)
    for name, node in zip(draft.output_names[:own], draft.outputs):
        if not hasattr(node, "meta") or not isinstance(node.meta.get("val"), torch.Tensor):
            raise Refusal("it returns a value that is not a tensor", "return one tensor, or a tuple of tensors")
        value = value_of(node)
        check = (index_output(draft, node) if value.dtype == torch.int64 else None) or {}
        if value.dtype not in FLOATS and not check:
            raise Refusal(f"its output has dtype {str(value.dtype).removeprefix('torch.')}, which cannot be checked",
                          "return float32, float16 or bfloat16 (or the argmax or argmin of the first input along a dimension)")
        if 0 in value.shape:
            raise Refusal(f"its output is empty: shape {list(value.shape)}", "sizes start at 1")
        outputs.append({"name": name, "shape": draft.shapes[node], "dtype": DTYPES[value.dtype]})
    return outputs, check


def case_of(job):
    if job.get("function"):
        return case_of_function(job["function"], job["examples"], job.get("folder"))
    if job.get("any_class"):
        return case_of_class(job["file"], job.get("class"), job.get("examples"), job.get("init") or {},
                             job.get("dtype"))
    return case_of_file(job["file"])


def describe(job, say):
    say({"phase": "load"})
    use_recurrent_shapes()
    case = case_of(job)
    case.module.train(not job.get("eval"))
    if case.is_module:
        case.target.train(not job.get("eval"))
    for parameter in case.module.parameters():
        parameter.requires_grad_(False)
    say({"phase": "trace"})
    draft = traced(case, job)
    describe_outputs(draft)
    checks = checked(case, draft, job, say)
    draft = checks.draft
    outputs, extreme = describe_outputs(draft)
    module = origin(case, draft)
    sizes = {"full": draft.sizes.full, **({"small": checks.small} if checks.small is not None else {})}
    shapes, about_shapes = checks.given_shapes()
    facts = model(case, draft, sizes, shapes)
    notes = [*case.notes, *about_shapes]
    if draft.changed:
        notes.append("forward writes into " + ", ".join(f"`{draft.name(n)}`" for n in draft.changed) + ": input-outputs of the problem, "
                     "into which an exported kernel writes too")
    if not checks.compared:
        why = f": {checks.why_not}" if checks.why_not else ": too large for that here"
        notes.append("not compared with the module" + why)
    flags = {}
    if any(draft.sizes.at_full(numel(value_of(n))) >= LARGE_INDEX for n in draft.tensors + draft.outputs):
        flags["needs-int64-index"] = "A tensor has 2^31 elements or more."
    inputs = [{"name": draft.name(n), "shape": draft.shapes[n], "dtype": DTYPES[value_of(n).dtype],
               "role": "param" if n in draft.parameters else "inout" if n in draft.changed else "input", **draft.specs[n]} for n in draft.tensors]
    return {"reference": draft.text, "source": case.source, "module": module, "model": facts, "families": families(draft.graph.graph), "sizes": sizes,
            "shapes": shapes, "inputs": inputs, "outputs": outputs, "cost": draft.cost, "check": {**draft.check, **extreme},
            "flags": flags, "notes": notes, "torch": torch.__version__,
            "bytes": {name: draft.sizes.at(draft.traffic, at) for name, at in sizes.items()}}
