"""What is to be imported: a module, its arguments, and where both come from. Runs the person's own code."""

import importlib.util
import inspect
import os
import sys

import torch

from .recorder import Recorder
from .refusals import Refusal, refuse_raised

DTYPES = {torch.float32: "float32", torch.int64: "int64", torch.bool: "bool"}


class Case:
    """`arguments` are those that the module is traced with, `names` theirs; `fresh(seed)` gives others of the same
    shapes, None where the memory for them is not there."""

    def __init__(self):
        self.recorder = Recorder()
        self.constants = {}
        self.notes = []
        self.fresh = lambda seed: None

    def take(self, arguments, names=None):
        if isinstance(arguments, torch.Tensor):
            arguments = [arguments]
        if not isinstance(arguments, (list, tuple)):
            raise Refusal(f"its inputs are a {type(arguments).__name__}, not a list of tensors",
                          "return [tensor, ...] in the order of forward's arguments")
        self.arguments = [a.detach() if isinstance(a, torch.Tensor) else a for a in arguments]
        self.names = names or argument_names(self.function, self.arguments)
        for name, argument in zip(self.names, self.arguments):
            check_argument(name, argument)
        if not any(isinstance(a, torch.Tensor) for a in self.arguments):
            raise Refusal("none of its inputs is a tensor", "give it at least one tensor of float32, int64 or bool")


def argument_names(function, arguments):
    try:
        kinds = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        kinds = []
    names = [k.name for k in kinds if k.kind in (k.POSITIONAL_ONLY, k.POSITIONAL_OR_KEYWORD)]
    return [names[i] if i < len(names) else f"x{i}" for i in range(len(arguments))]


def check_argument(name, argument):
    if argument is None or isinstance(argument, (bool, int, float)):
        return  # a constant of the problem
    if not isinstance(argument, torch.Tensor):
        kind = type(argument).__name__
        inside = "s of tensors" if isinstance(argument, (list, tuple, dict)) else "s"
        raise Refusal(f"input `{name}` is a {kind}: {kind}{inside} are not supported",
                      "give every tensor an argument of its own; numbers become constants")
    if argument.device.type != "cpu":
        raise Refusal(f"get_inputs() needs CUDA: input `{name}` is on {argument.device}",
                      "make get_inputs return CPU tensors; Kevin moves them by itself")
    if argument.dtype not in DTYPES:
        raise Refusal(f"input `{name}` has dtype {argument.dtype}, which problems do not have",
                      "make it float32 (a run's --precision makes that fp16 or bf16)"
                      if argument.dtype.is_floating_point else "make it int64 or bool")
    if argument.layout != torch.strided or not argument.is_contiguous():
        raise Refusal(f"input `{name}` is strided: shape {list(argument.shape)}, strides {list(argument.stride())}"
                      if argument.layout == torch.strided else f"input `{name}` is {argument.layout}",
                      "candidates get contiguous tensors: pass the contiguous one and transpose inside forward")
    if argument.numel() == 0:
        raise Refusal(f"input `{name}` is empty: shape {list(argument.shape)}", "sizes start at 1")


def load_module(path):
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec = importlib.util.spec_from_file_location("kevin_imported", path)
    if spec is None:
        raise Refusal(f"{path} is no Python file", "give a file that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["kevin_imported"] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        refuse_raised("it", error)
    return module


def constants_of(module):
    return {name: value for name, value in vars(module).items()
            if type(value) is int and value > 1 and not name.startswith("_")}


def case_of_file(path):
    case = Case()
    case.folder = os.path.dirname(os.path.abspath(path))
    module = load_module(path)
    with open(path, encoding="utf-8", errors="replace") as file:
        case.source = file.read()
    for name in ("Model", "get_inputs"):
        if not hasattr(module, name):
            raise Refusal(f"it has no `{name}`",
                          "a file needs class Model, get_inputs() and get_init_inputs(); for a function of your own "
                          "use --function module:function --example-inputs FILE.pt")
    case.constants = constants_of(module)
    torch.manual_seed(1)
    with case.recorder:
        try:
            given = module.get_init_inputs() if hasattr(module, "get_init_inputs") else []
            case.module = module.Model(*given)
        except Exception as error:
            refuse_raised("Model(*get_init_inputs())", error)
        try:
            arguments = module.get_inputs()
        except Exception as error:
            refuse_raised("get_inputs()", error)
    if not isinstance(case.module, torch.nn.Module):
        raise Refusal("its Model is no torch.nn.Module", "derive it from torch.nn.Module")
    case.function = case.module.forward
    case.take(arguments)

    def fresh(seed):
        torch.manual_seed(seed)
        return [a.detach() if isinstance(a, torch.Tensor) else a for a in module.get_inputs()]

    if not case.recorder.skipped:
        case.fresh = fresh
    return case
