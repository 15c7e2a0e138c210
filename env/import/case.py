"""The module to import and its arguments, from a file with `class Model` or from a function with example inputs. Runs
the user's own code."""

import importlib
import importlib.util
import inspect
import os
import sys

import torch

from .arguments import Adapter, Arguments
from .recorder import Recorder
from .refusals import Refusal, first_line, refuse_raised

SAVE = "torch.save([tensor, ...], FILE) has them in order, torch.save({\"name\": tensor, ...}, FILE) by name"


class Case:
    """`module` takes `tensors`, the inputs of the problem with the names `names`; `given` says how they and constants are
    the arguments of `target`, the user's function or module. `fresh(seed)`: other tensors of the same shapes, None if
    memory is too small for them or nothing makes them."""

    def __init__(self):
        self.recorder = Recorder()
        self.constants = {}
        self.dynamic = None  # `dynamic_shapes` of the user's file
        self.notes = []
        self.origin, self.target, self.is_module = None, None, False  # for origin.py; None: nothing names the class
        self.constructed = None  # for model.py: the constructor's arguments in order and by name; None: not known
        self.fresh = lambda seed: None

    def take(self, target, given, make=None):
        """`given`: the arguments in a list, or in a dictionary by name. `make` gives others of the same structure."""
        self.target, self.is_module = target, isinstance(target, torch.nn.Module)
        values, names, by_name = listed(given, self.function)
        self.given = Arguments(values, names, by_name)
        self.names, self.tensors = self.given.names, self.given.tensors
        if not self.tensors:
            raise Refusal("none of its inputs is a tensor", "give it at least one tensor")
        plain = self.is_module and self.given.is_plain()
        self.module = target if plain else Adapter(target, self.given)
        if make is None or self.recorder.skipped:
            return

        def fresh(seed):
            torch.manual_seed(seed)
            return self.given.tensors_of(listed(make(), self.function)[0])

        self.fresh = fresh


def listed(given, function):
    """The arguments in order, their names, and whether they are passed by name."""
    if isinstance(given, torch.Tensor):
        given = [given]
    if isinstance(given, dict) and given and all(isinstance(name, str) for name in given):
        return list(given.values()), list(given), True
    if not isinstance(given, (list, tuple)):
        raise Refusal(f"its inputs are a {type(given).__name__}, not a list of tensors",
                      "return [tensor, ...] in the order of forward's arguments, or {\"name\": tensor, ...}")
    return list(given), argument_names(function, given), False


def argument_names(function, arguments):
    try:
        kinds = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        kinds = []
    names = [k.name for k in kinds if k.kind in (k.POSITIONAL_ONLY, k.POSITIONAL_OR_KEYWORD)]
    return [names[i] if i < len(names) else f"x{i}" for i in range(len(arguments))]


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
    case.constants, case.dynamic = constants_of(module), getattr(module, "dynamic_shapes", None)
    torch.manual_seed(1)
    with case.recorder:
        try:
            given = module.get_init_inputs() if hasattr(module, "get_init_inputs") else []
            target = module.Model(*given)
            case.constructed = (list(given), {})
        except Exception as error:
            refuse_raised("Model(*get_init_inputs())", error)
        try:
            arguments = module.get_inputs()
        except Exception as error:
            refuse_raised("get_inputs()", error)
    if not isinstance(target, torch.nn.Module):
        raise Refusal("its Model is no torch.nn.Module", "derive it from torch.nn.Module")
    case.function = target.forward
    case.origin = {"class": "Model", "import": ""}
    case.take(target, arguments, module.get_inputs)
    say_constants(case, {})
    return case


# --- A function or module of the user, with example inputs ---


def find(name, folder):
    """The Python module, and the function or torch.nn.Module in it. `folder`: where Python's import looks first."""
    place, _, attribute = name.rpartition(":")
    if not place:
        raise Refusal(f"--function {name}: no function named", "give module:function or file.py:function")
    if place.endswith(".py"):
        place = os.path.join(folder or "", place)
        if not os.path.isfile(place):
            raise Refusal(f"--function {name}: there is no file {place}", "give the path of the file from here")
        module = load_module(place)
    else:
        sys.path.insert(0, folder or os.getcwd())
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


def say_constants(case, defaults):
    """A note on the arguments that are constants of the problem, and on those that have their default values."""
    fixed = {**defaults, **dict(case.given.constants())}
    if fixed:
        case.notes.append("constants of the problem: " + ", ".join(f"{n} = {value!r}" for n, value in fixed.items()))


def case_of_function(name, path, folder):
    case = Case()
    module, target = find(name, folder)
    attribute = name.rpartition(":")[2]
    case.constants = constants_of(module)
    case.folder = os.path.dirname(os.path.abspath(getattr(module, "__file__", None) or "."))
    is_class = isinstance(target, type) and issubclass(target, torch.nn.Module)
    if is_class:
        with case.recorder:
            try:
                target = target()
                case.constructed = ([], {})
            except Exception as error:
                refuse_raised(f"{attribute}()", error)
    if not callable(target):
        raise Refusal(f"{name} is no function", "name a function, a torch.nn.Module or its class")
    is_module = isinstance(target, torch.nn.Module)
    if is_class or not is_module:
        file = "" if name.rpartition(":")[0].endswith(".py") else module.__name__
        case.origin = {"class": attribute, "import": file}
    case.function = target.forward if is_module else target
    examples = load_examples(path)
    fixed = bind(case.function, attribute, examples)
    try:  # of a file all of it, so that the class can be made from it again
        case.source = inspect.getsource(module if case.origin and not case.origin["import"] else
                                        type(target) if is_module else target)
    except (OSError, TypeError):
        case.source = ""
    case.take(target, examples)
    say_constants(case, fixed)
    return case
