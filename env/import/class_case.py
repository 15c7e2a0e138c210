"""The module to optimize: a class of a file by its name, or the only one, with its constructor's arguments and inputs
from the file or from the command."""

import os

import torch

from .case import (SAVE, Case, bind, constants_of, imported_as, load_examples, load_module, missing_arguments, say_constants,
                   source_of)
from .refusals import Refusal, refuse_raised


def own_classes(module):
    return [name for name, value in vars(module).items()
            if isinstance(value, type) and issubclass(value, torch.nn.Module) and value.__module__ == module.__name__]


def chosen(module, path, name):
    """The class, function or module to optimize, and its name."""
    classes = own_classes(module)
    if not name:
        name = "Model" if "Model" in classes else classes[0] if len(classes) == 1 else ""
    file = os.path.basename(path)
    if not name:
        raise Refusal(f"it has {'several classes: ' + ', '.join(classes) if classes else 'no torch.nn.Module class'}",
                      f"name one: {file}:{classes[-1]}" if classes else f"name a function: {file}:NAME")
    target = module
    for part in name.split("."):
        if not hasattr(target, part):
            raise Refusal(f"it has no `{name}`", f"it has {', '.join(classes)}" if classes else "check the name")
        target = getattr(target, part)
    return target, name


def construct(module, target, name, init):
    given = []
    if not init and hasattr(module, "get_init_inputs"):
        given = list(module.get_init_inputs())
    missing = [] if given else missing_arguments(target, init)
    if missing:
        raise Refusal(f"class `{name}` needs constructor arguments: {', '.join(missing)}",
                      " ".join(f"--init {m}=..." for m in missing) + ", or define get_init_inputs() in the file")
    try:
        return target(*given, **init), (given, init)
    except Exception as error:
        refuse_raised(f"{name}({', '.join([*map(repr, given), *(f'{k}={v!r}' for k, v in init.items())])})", error)


def inputs_of(module, examples):
    """The arguments, in a list or by name."""
    if examples:
        return load_examples(examples)
    if not hasattr(module, "get_inputs"):
        raise Refusal("it has no get_inputs()", f"--example-inputs FILE.pt; {SAVE}")
    try:
        return module.get_inputs()
    except Exception as error:
        refuse_raised("get_inputs()", error)


def cast(given, dtype):
    """Floating tensors of 32 bits in another type, in containers too."""
    if isinstance(given, torch.Tensor):
        return given.to(dtype) if given.dtype == torch.float32 else given
    if isinstance(given, dict):
        return {name: cast(one, dtype) for name, one in given.items()}
    if isinstance(given, tuple) and hasattr(given, "_fields"):
        return type(given)(*(cast(one, dtype) for one in given))
    return type(given)(cast(one, dtype) for one in given) if isinstance(given, (list, tuple)) else given


def cast_module(module, dtype):
    """The same of its parameters and buffers, in place."""
    module._apply(lambda tensor: cast(tensor, dtype))


def case_of_class(path, name, examples, init, dtype=None):
    """`dtype`: "float16" or "bfloat16", that the module and its inputs are cast to before anything is traced, as they are
    deployed; None: as the file makes them."""
    case = Case()
    case.folder = os.path.dirname(os.path.abspath(path))
    module = load_module(path)
    case.source = source_of(path)
    case.constants, case.dynamic = constants_of(module), getattr(module, "dynamic_shapes", None)
    target, name = chosen(module, path, name)
    torch.manual_seed(1)
    with case.recorder:
        if isinstance(target, type) and issubclass(target, torch.nn.Module):
            target, case.constructed = construct(module, target, name, init)
        if not callable(target):
            raise Refusal(f"`{name}` is neither a class nor a function", "name a torch.nn.Module class or a function")
        given = inputs_of(module, examples)
    make = None if examples else module.get_inputs
    if dtype is not None:
        dtype = getattr(torch, dtype)
        given = cast(given, dtype)
        if isinstance(target, torch.nn.Module):
            cast_module(target, dtype)
        if make is not None:
            draw = make

            def make():
                return cast(draw(), dtype)
    is_module = isinstance(target, torch.nn.Module)
    case.origin = {"class": name, "import": imported_as(module)}
    if is_module and type(target).__name__ != name.rpartition(".")[2]:
        case.origin = None  # a module that is already built: there is no class to take the place of
    case.function = target.forward if is_module else target
    if isinstance(given, torch.Tensor):
        given = [given]
    defaults = bind(case.function, name, given)
    case.take(target, given, make)
    say_constants(case, defaults if not is_module else {})
    return case
