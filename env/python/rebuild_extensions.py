#!/usr/bin/env python3
"""Compiles the extensions of a candidate once more, in the sandbox of compilers and in a process in which none of its code runs:
the process that imports a candidate may write any bundle (build_candidate.py). So the evaluator knows what a compiler made.

    rebuild_extensions.py HEADERS   in a folder with header.json; writes candidate.so, a bundle of these extensions alone

header.json is the first line of the candidate's bundle. Its list "asked" has for each extension the "file" in that bundle, the
arguments, and whether Kevin's own headers served ("own"). All of it is the candidate's word. What has a flag or a name that is
not known here is left out, with a line on standard error: a plug-in of the compiler is code of the candidate, and flags are words
of a shell. Ends with 1 where a compiler fails. HEADERS: as of build_candidate.py.
"""

import copy
import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
MOST_EXTENSIONS = 16
FILE = re.compile(r"own-([0-9a-f]{32})-\d+\.so")
NAME = re.compile(r"\w{1,200}", re.ASCII)
PART = re.compile(r"(?!own-|build-)[\w+-][\w.+-]*", re.ASCII)  # of a path
# No character that a shell or ninja knows, and nothing that loads code, names a program or reads a file.
OF_COMPILER = re.compile(
    r"-[DU]\w+(=[\w.+:-]*)?|-O\w*|-std=[\w+]+|-m[\w.=+-]+|-W[\w=+-]*|-w|-g\d?|-pthread|-pipe|"
    r"-f(?!plugin|profile|auto-profile|dump|sanitize|module|use-ld|compare|lto|pch|save)[\w=+-]+", re.ASCII)
OF_LINKER = re.compile(r"-fopenmp|-fPIC|-shared|-pthread|-O\w*|-m(arch|tune)=[\w.-]+|-l(m|gomp|pthread|dl|rt|stdc\+\+)|"
                       r"-Wl,(-O\d|--as-needed|--no-as-needed)", re.ASCII)
FLAGS = {"extra_cflags": OF_COMPILER, "extra_cuda_cflags": OF_COMPILER, "extra_ldflags": OF_LINKER}
OTHERS = ("functions", "with_cuda", "is_python_module", "with_pytorch_error_handling", "no_implicit_headers")


class Unknown(Exception):
    """Left out."""


def require(done, what):
    if not done:
        raise Unknown(what)


def check_options(options):
    import own_headers
    for option, value in options.items():
        require(option in FLAGS or option in OTHERS or not value, f"the option {option}")
        for flag in own_headers.as_list(value) if option in FLAGS else []:
            for word in flag.split():
                require(FLAGS[option].fullmatch(word), f"{word} in {option}")


def write_files(files):
    """Where the import had them, in this folder: a text may contain its own path."""
    here = os.path.realpath(".")
    for path, text in files.items():
        parts = os.path.relpath(os.path.normpath(path), here).split(os.sep)
        require(all(PART.fullmatch(part) for part in parts) and parts[0] not in ("header.json", "candidate.so"),
                f"the place of {os.path.basename(path)}")
        os.makedirs(os.path.join(here, *parts[:-1]), exist_ok=True)
        with open(os.path.join(here, *parts), "w", encoding="utf-8") as out:
            out.write(text)


def with_own_headers(folder, asked):
    import own_headers
    return own_headers.compile_inline(asked["name"], asked["cpp_sources"], asked.get("cuda_sources"), asked["options"], folder)


def with_torch(folder, asked, headers):
    """Builds and does not load: the code of an extension runs when it is loaded."""
    import torch_headers
    import torch
    torch.cuda.is_available = lambda: False
    import torch.utils.cpp_extension as cpp_extension
    built = []
    cpp_extension._import_module_from_library = lambda name, place, *_: built.append(os.path.join(place, f"{name}.so"))
    if "files" in asked:
        write_files(asked["files"])
    has_cuda = bool(asked.get("cuda_sources")) or any(path.endswith(".cu") for path in asked.get("files", {}))
    attempts = torch_headers.attempts(headers, asked["options"], has_cuda)
    if not asked.get("set"):  # one may have been made since the first build: the code could stand in another order
        attempts = attempts[-1:]
    for options in attempts:
        call = copy.deepcopy({**asked, "options": {**options, "build_directory": folder, "verbose": False}})
        try:
            if "files" in asked:
                cpp_extension.load(call["name"], list(call["files"]), **call["options"])
            else:
                cpp_extension.load_inline(call["name"], call["cpp_sources"], call.get("cuda_sources"), **call["options"])
            return built[-1]
        except RuntimeError:
            if options is attempts[-1]:
                raise


def compiled(asked, headers):
    """(file, content)."""
    key = FILE.fullmatch(asked["file"])
    require(key, "the file of an extension")
    require(NAME.fullmatch(asked["name"]), "the name of an extension")
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
    with open("header.json", "rb") as file:
        everything = json.load(file)["asked"]
    libraries = []
    for asked in everything[:MOST_EXTENSIONS]:
        try:
            libraries.append(compiled(asked, sys.argv[1]))
        except Unknown as unknown:
            print(f"{unknown} is not known: this extension does not count as its own code", file=sys.stderr, flush=True)
        except Exception as error:
            build_candidate.fail(f"an extension did not compile once more: {type(error).__name__}: {error}"[:4000])
    build_candidate.write_bundle("extensions", b"", {}, libraries)


if __name__ == "__main__":
    main()
