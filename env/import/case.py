"""The module to import and its arguments, from a file with `class Model` or from a function with example inputs. Runs
the user's own code."""

import ast
import importlib
import importlib.machinery
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


def source_of(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def package_of(path):
    """Of a file that imports relatively (from .layers import Gate): the folder that holds its package, and its name as a
    module. None for other files."""
    try:
        nodes = list(ast.walk(ast.parse(source_of(path))))
    except (SyntaxError, ValueError):
        return None  # the import says more
    levels = max((node.level for node in nodes if isinstance(node, ast.ImportFrom)), default=0)
    if levels == 0:
        return None
    folder, parts = os.path.dirname(os.path.abspath(path)), [os.path.basename(path).removesuffix(".py")]
    while len(parts) <= levels or os.path.exists(os.path.join(folder, "__init__.py")):
        name = os.path.basename(folder)
        if not name.isidentifier():
            raise Refusal(f"it imports relatively, and its folder `{name}` cannot be a package",
                          "give the folder a name of letters, digits and _, or write `from layers import ...` without the dot")
        parts.insert(0, name)
        folder = os.path.dirname(folder)
    return folder, ".".join(parts)


def imported_as(module):
    """The name by which a drop-in imports the file of a package; empty: the text of the file is enough."""
    return "" if module.__name__ == "kevin_imported" else module.__name__


def load_package(folder, name):
    sys.path.insert(0, folder)
    first = name.partition(".")[0]
    place = os.path.join(folder, first)
    begin = os.path.join(place, "__init__.py")
    try:
        if first not in sys.modules:  # by its place: in a sandbox the folder above it cannot be listed
            spec = importlib.util.spec_from_file_location(first, begin, submodule_search_locations=[place]) if os.path.exists(begin) \
                else importlib.machinery.ModuleSpec(first, None, is_package=True)
            spec.submodule_search_locations[:] = [place]
            package = sys.modules[first] = importlib.util.module_from_spec(spec)
            if spec.loader is not None:
                spec.loader.exec_module(package)
        module = sys.modules["kevin_imported"] = importlib.import_module(name)
    except Exception as error:
        refuse_raised("it", error)
    return module


def load_module(path):
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    package = package_of(path)
    if package is not None:
        return load_package(*package)
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


def missing_arguments(target, init=()):
    """The constructor's arguments that have no value."""
    try:
        parameters = list(inspect.signature(target.__init__).parameters.values())[1:]
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.default is p.empty and p.name not in init
            and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY, p.POSITIONAL_ONLY)]


def refuse_missing(name, target, file):
    """Where nothing gives the constructor's arguments."""
    missing = missing_arguments(target)
    if missing:
        raise Refusal(f"class `{name}` needs constructor arguments: {', '.join(missing)}",
                      f"define get_init_inputs() in the file, or kevin optimize {file} " +
                      " ".join(f"--init {m}=..." for m in missing))


def constants_of(module):
    return {name: value for name, value in vars(module).items()
            if type(value) is int and value > 1 and not name.startswith("_")}


def case_of_file(path):
    case = Case()
    case.folder = os.path.dirname(os.path.abspath(path))
    module = load_module(path)
    case.source = source_of(path)
    for name in ("Model", "get_inputs"):
        if not hasattr(module, name):
            raise Refusal(f"it has no `{name}`",
                          "a file needs class Model, get_inputs() and get_init_inputs(); for a function of your own "
                          "use --function module:function --example-inputs FILE.pt")
    case.constants, case.dynamic = constants_of(module), getattr(module, "dynamic_shapes", None)
    if not hasattr(module, "get_init_inputs"):
        refuse_missing("Model", module.Model, os.path.basename(path))
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
    case.origin = {"class": "Model", "import": imported_as(module)}
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
        refuse_missing(attribute, target, os.path.basename(getattr(module, "__file__", None) or "FILE.py") + f":{attribute}")
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
        case.origin = {"class": attribute, "import": imported_as(module)}
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
