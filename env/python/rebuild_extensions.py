#!/usr/bin/env python3
"""Compiles the extensions of a candidate once more, in the sandbox of compilers and in a process in which none of its code runs:
the process that imports a candidate may write any bundle (build_candidate.py). So the evaluator knows what a compiler made.

    rebuild_extensions.py HEADERS   in a folder with asked.json; writes candidate.so, a bundle of these extensions alone

asked.json is a list, of an extension each: its "file" in the first bundle, its name and arguments, and whether Kevin's own headers
served ("own"). All of it is the candidate's word. What cannot be compiled again, or has a flag that is not known here (a plug-in
of the compiler is code of the candidate), is left out. HEADERS: as of build_candidate.py.
"""

import glob
import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
MOST_EXTENSIONS = 16
FILE = re.compile(r"own-([0-9a-f]{32})-\d+\.so")
NAME = re.compile(r"\w{1,200}")
OF_LINKER = re.compile(r"-fopenmp|-pthread|-O[0-3s]?|-lm|-lgomp")
# Options of load_inline and load, with the flags that each may have (None: any value).
OPTIONS = {"functions": None, "with_cuda": None, "is_python_module": None, "with_pytorch_error_handling": None,
           "no_implicit_headers": None, "extra_cflags": "compiler", "extra_ldflags": "linker"}


class Unknown(Exception):
    """Left out."""


def require(done):
    if not done:
        raise Unknown


def check_options(options):
    import own_headers
    import torch_headers
    for option, value in options.items():
        require(option in OPTIONS)
        kind = OPTIONS[option]
        if kind is None or value is None:
            continue
        for flag in own_headers.words(own_headers.as_list(value)):
            of_compiler = torch_headers.OF_A_SET.fullmatch(flag) or torch_headers.OF_THE_TEXT.fullmatch(flag)
            require(of_compiler if kind == "compiler" else OF_LINKER.fullmatch(flag))


def with_own_headers(folder, asked):
    import own_headers
    return own_headers.compile_inline(asked["name"], asked["cpp_sources"], asked.get("cuda_sources"), asked["options"], folder)


def write_files(files):
    """Where the import had them, in this folder: a text may contain its own path."""
    for path, text in files.items():
        require(os.path.dirname(os.path.realpath(path)) == os.path.realpath(".") and not os.path.lexists(path))
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)


def with_torch(folder, asked, headers):
    """Builds and does not load: the code of an extension runs when it is loaded."""
    import torch_headers
    import torch
    torch.cuda.is_available = lambda: False
    import torch.utils.cpp_extension as cpp_extension
    cpp_extension._import_module_from_library = lambda *_: None
    if "files" in asked:
        write_files(asked["files"])
    has_cuda = bool(asked.get("cuda_sources")) or any(path.endswith(".cu") for path in asked.get("files", {}))
    for options in torch_headers.attempts(headers, asked["options"], has_cuda):
        options = {**options, "build_directory": folder, "verbose": False}
        try:
            if "files" in asked:
                cpp_extension.load(asked["name"], list(asked["files"]), **options)
            else:
                cpp_extension.load_inline(asked["name"], asked["cpp_sources"], asked.get("cuda_sources"), **options)
            break
        except RuntimeError:
            continue
    return max(glob.glob(os.path.join(folder, "*.so")), key=os.path.getmtime)


def compiled(asked, headers):
    """(file, content)."""
    key = FILE.fullmatch(asked["file"])
    require(key and NAME.fullmatch(asked["name"]))
    check_options(asked["options"])
    folder = os.path.abspath(("own-" if asked["own"] else "build-") + key[1])  # as in the first build
    os.makedirs(folder)
    library = with_own_headers(folder, asked) if asked["own"] else with_torch(folder, asked, headers)
    with open(library, "rb") as built:
        return asked["file"], built.read()


def main():
    sys.path.insert(0, HERE)
    import build_candidate
    os.environ.setdefault("TORCH_CUDA_ARCH_LIST", build_candidate.ARCH_WITHOUT_GPU)
    with open("asked.json", "rb") as file:
        everything = json.load(file)
    libraries = []
    for asked in everything[:MOST_EXTENSIONS]:
        try:
            libraries.append(compiled(asked, sys.argv[1]))
        except Exception as error:
            print(f"not compiled again: {type(error).__name__}: {error}"[:2000], file=sys.stderr, flush=True)
    build_candidate.write_bundle("extensions", b"", {}, libraries)


if __name__ == "__main__":
    main()
