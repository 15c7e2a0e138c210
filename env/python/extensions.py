"""torch.utils.cpp_extension for candidates. What a candidate compiles is compiled once, by build_candidate.py in the
sandbox of compilers; a worker has no compiler and loads the result, found by all that it was compiled from. What was compiled
with Kevin's own headers (own_headers.py) is no Python module: its functions are bound by kevin-python-worker.so."""

import ctypes
import hashlib
import importlib.util
import inspect
import os
import types

binding = None  # kevin-python-worker.so, where it can bind functions


def key_of(kind, name, sources, options):
    text = repr((kind, name, sources, sorted((key, repr(value)) for key, value in options.items())))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


# Options that change neither the code nor how it is loaded.
IGNORED = ("verbose", "build_directory")


def as_list(sources):
    return [sources] if isinstance(sources, str) else list(sources or [])


def inline_key(name, cpp_sources, cuda_sources, options):
    kept = {key: value for key, value in options.items() if key not in IGNORED}
    return key_of("inline", name, (as_list(cpp_sources), as_list(cuda_sources)), kept)


def files_key(name, sources, options):
    texts = []
    for path in as_list(sources):
        with open(path, encoding="utf-8", errors="replace") as file:
            texts.append(file.read())
    kept = {key: value for key, value in options.items() if key not in IGNORED}
    return key_of("files", name, texts, kept)


def import_library(name, path, is_python_module=True):
    if not is_python_module:
        import torch
        torch.ops.load_library(path)
        return path
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def prepare(library):
    """Once, before use_compiled or bind. Needs torch; makes the table of functions visible to what is loaded later."""
    global binding
    loaded = ctypes.PyDLL(library, mode=ctypes.RTLD_GLOBAL)
    loaded.KevinPrepareBinding.restype = loaded.KevinBindModule.restype = ctypes.c_bool
    loaded.KevinBindModule.argtypes = [ctypes.c_void_p, ctypes.py_object]
    if loaded.KevinPrepareBinding():
        binding = loaded


def bind(name, path):
    """The module of an extension that was compiled with Kevin's own headers. Raises OSError where it cannot be loaded, and
    ImportError where it cannot be bound: it needs torch's headers then."""
    if binding is None:
        raise ImportError("this torch keeps tensors elsewhere")
    extension = ctypes.PyDLL(path)
    extension.KevinModule.restype = ctypes.c_void_p
    module = types.ModuleType(name)
    module.__file__ = path
    if not binding.KevinBindModule(extension.KevinModule(), module):
        raise ImportError("a function stands twice")
    return module


def with_positions(theirs, ours):
    """`ours`, whose arguments may also be given by their positions in `theirs`."""
    names = list(inspect.signature(theirs).parameters)

    def call(*arguments, **named):
        if len(arguments) > len(names):
            raise TypeError(f"{theirs.__name__} takes {len(names)} arguments, not {len(arguments)}")
        return ours(**dict(zip(names, arguments)), **named)

    return call


def install(load_inline, load):
    import torch.utils.cpp_extension as cpp_extension
    cpp_extension.load_inline = with_positions(cpp_extension.load_inline, load_inline)
    cpp_extension.load = with_positions(cpp_extension.load, load)


def use_compiled(folder, compiled):
    """`compiled`: key to {"file", "name", "own"} in `folder`, or to {"name", "error"} of what did not compile. A name may
    differ from process to process (its number, the time): what was compiled from the same sources serves then."""

    def find(key_with, name, options):
        found = compiled.get(key_with(name)) or compiled.get(key_with(None))
        if found is None:
            raise RuntimeError(f"extension {name} was not compiled: its sources or options differ from those of the "
                               "first import")
        if "error" in found:
            raise RuntimeError(found["error"])
        if found.get("own"):
            return bind(name, os.path.join(folder, found["file"]))
        return import_library(found["name"], os.path.join(folder, found["file"]), options.get("is_python_module", True))

    def load_inline(name, cpp_sources, cuda_sources=None, **options):
        return find(lambda known: inline_key(known, cpp_sources, cuda_sources, options), name, options)

    def load(name, sources, **options):
        return find(lambda known: files_key(known, sources, options), name, options)

    install(load_inline, load)
