"""What is to be imported as a function or module of a person's own, with example inputs."""

import importlib
import inspect
import os
import sys

import torch

from .case import Case, constants_of, load_module
from .refusals import Refusal, first_line, refuse_raised

SAVE = "torch.save([tensor, ...], FILE) has them in order, torch.save({\"name\": tensor, ...}, FILE) by name"


class Function(torch.nn.Module):
    """A function as a module; `names` are those of its arguments where they are passed by name."""

    def __init__(self, function, names=None):
        super().__init__()
        self.function, self.names = function, names

    def forward(self, *arguments):
        if self.names is not None:
            return self.function(**dict(zip(self.names, arguments)))
        return self.function(*arguments)


def find(name):
    """The module that has it, and the function or torch.nn.Module itself."""
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
    """Checks that the examples are arguments of it; the values of those left out, by name."""
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
    if isinstance(target, type) and issubclass(target, torch.nn.Module):
        with case.recorder:
            try:
                target = target()
            except Exception as error:
                refuse_raised(f"{attribute}()", error)
    if not callable(target):
        raise Refusal(f"{name} is no function", "name a function, a torch.nn.Module or its class")
    is_module = isinstance(target, torch.nn.Module)
    case.function = target.forward if is_module else target
    examples = load_examples(path)
    fixed = bind(case.function, attribute, examples)
    names = list(examples) if isinstance(examples, dict) else None
    case.module = target if is_module and names is None else Function(target, names)
    try:
        case.source = inspect.getsource(type(target) if is_module else target)
    except (OSError, TypeError):
        case.source = ""
    case.take(list(examples.values()) if names else examples, names)
    fixed.update((n, a) for n, a in zip(case.names, case.arguments) if not isinstance(a, torch.Tensor))
    if fixed:
        case.notes.append("constants of the problem: " + ", ".join(f"{n} = {value!r}" for n, value in fixed.items()))
    return case
