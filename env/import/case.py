"""The module to import and its arguments, from a file with `class Model` or from a function with example inputs. Runs
the user's own code."""

import importlib
import importlib.util
import inspect
import os
import sys

import torch

from .recorder import Recorder
from .refusals import Refusal, first_line, refuse_raised

DTYPES = {torch.float32: "float32", torch.int64: "int64", torch.bool: "bool"}
SAVE = "torch.save([tensor, ...], FILE) has them in order, torch.save({\"name\": tensor, ...}, FILE) by name"


class Case:
    """`arguments`: those of the trace; `names`: their names; `fresh(seed)`: others of the same shapes, None if memory is
    too small for them."""

    def __init__(self):
        self.recorder = Recorder()
        self.constants = {}
        self.notes = []
        self.origin, self.target, self.is_module = None, None, False  # for origin.py; None: nothing names the class
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
    case.target, case.is_module, case.origin = case.module, True, {"class": "Model", "import": ""}
    case.take(arguments)

    def fresh(seed):
        torch.manual_seed(seed)
        return [a.detach() if isinstance(a, torch.Tensor) else a for a in module.get_inputs()]

    if not case.recorder.skipped:
        case.fresh = fresh
    return case


# --- A function or module of the user, with example inputs ---


class Function(torch.nn.Module):
    """A function as a module; `names`: of its arguments, if they are passed by name."""

    def __init__(self, function, names=None):
        super().__init__()
        self.function, self.names = function, names

    def forward(self, *arguments):
        if self.names is not None:
            return self.function(**dict(zip(self.names, arguments)))
        return self.function(*arguments)


def find(name):
    """The Python module, and the function or torch.nn.Module in it."""
    place, _, attribute = name.rpartition(":")
    if not place:
        raise Refusal(f"--function {name}: no function named", "give module:function or file.py:function")
    if place.endswith(".py"):
        if not os.path.isfile(place):
            raise Refusal(f"--function {name}: there is no file {place}", "give the path of the file from here")
        module = load_module(place)
    else:
        sys.path.insert(0, os.getcwd())
        try:
            module = importlib.import_module(place)
        except Exception as error:
            refuse_raised(f"import {place}", error)
    target = module
    for part in attribute.split("."):
        if not hasattr(target, part):
            known = ", ".join(n for n, v in vars(module).items() if inspect.isfunction(v) and v.__module__ == module.__name__)
            raise Refusal(f"{place} has no `{attribute}`",
                          f"it has {known}" if known else "check the name; it is looked up after an import")
        target = getattr(target, part)
    return module, target


def load_examples(path):
    try:
        examples = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise Refusal(f"--example-inputs {path}: there is no such file", SAVE) from error
    except Exception as error:
        raise Refusal(f"--example-inputs {path}: {first_line(error)}", SAVE) from error
    if isinstance(examples, torch.Tensor):
        return [examples]
    if isinstance(examples, dict) and examples and all(isinstance(name, str) for name in examples):
        return examples
    if not isinstance(examples, (list, tuple)):
        raise Refusal(f"--example-inputs {path} holds a {type(examples).__name__}", SAVE)
    return list(examples)


def bind(function, attribute, examples):
    """Checks that the examples fit the signature; returns the default values of the other arguments, by name."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return {}
    try:
        bound = signature.bind(**examples) if isinstance(examples, dict) else signature.bind(*examples)
    except TypeError as error:
        count = ", ".join(examples) if isinstance(examples, dict) else f"{len(examples)} of them in order"
        raise Refusal(f"the example inputs ({count}) are no arguments of {attribute}{signature}: {error}", SAVE) from error
    return {name: parameter.default for name, parameter in signature.parameters.items()
            if parameter.default is not parameter.empty and name not in bound.arguments}


def case_of_function(name, path):
    case = Case()
    module, target = find(name)
    attribute = name.rpartition(":")[2]
    case.constants = constants_of(module)
    case.folder = os.path.dirname(os.path.abspath(getattr(module, "__file__", None) or "."))
    is_class = isinstance(target, type) and issubclass(target, torch.nn.Module)
    if is_class:
        with case.recorder:
            try:
                target = target()
            except Exception as error:
                refuse_raised(f"{attribute}()", error)
    if not callable(target):
        raise Refusal(f"{name} is no function", "name a function, a torch.nn.Module or its class")
    is_module = isinstance(target, torch.nn.Module)
    case.target, case.is_module = target, is_module
    if is_class or not is_module:
        file = "" if name.rpartition(":")[0].endswith(".py") else module.__name__
        case.origin = {"class": attribute, "import": file}
    case.function = target.forward if is_module else target
    examples = load_examples(path)
    fixed = bind(case.function, attribute, examples)
    names = list(examples) if isinstance(examples, dict) else None
    case.module = target if is_module and names is None else Function(target, names)
    try:  # of a file all of it, so that the class can be made from it again
        case.source = inspect.getsource(module if case.origin and not case.origin["import"] else
                                        type(target) if is_module else target)
    except (OSError, TypeError):
        case.source = ""
    case.take(list(examples.values()) if names else examples, names)
    fixed.update((n, a) for n, a in zip(case.names, case.arguments) if not isinstance(a, torch.Tensor))
    if fixed:
        case.notes.append("constants of the problem: " + ", ".join(f"{n} = {value!r}" for n, value in fixed.items()))
    return case
