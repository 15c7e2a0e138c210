#!/usr/bin/env python3
"""torch/extension.h in precompiled form, for C++ that Kevin's own headers (own_headers.py) do not serve.

    torch_headers.py [FLAG...]   makes a set: torch/extension.h.gch and torch/extension.h in the working folder

For g++; nvcc has no precompiled headers. env/python/torch_headers.h decides when a set is made, in a sandbox of its own, and has
its costs. Nothing here imports torch.
"""

import contextlib
import hashlib
import os
import re
import shlex
import subprocess
import sys
import sysconfig

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # python -I leaves it out

import own_headers

HEADER, PRECOMPILED = "torch/extension.h", "torch/extension.h.gch"
# A text may include the header again; g++ looks for the plain one beside the precompiled one then.
HEADER_TEXT = "#pragma once\n#include_next <torch/extension.h>\n"
WANTED = "kevin-build: torch/extension.h for:"  # as in torch_headers.cc
CXX_FLAGS = ["-fPIC", "-std=c++17"]  # of load_inline, before those of the text
# A set is made with these flags of a text, in their order. Others must not change what the header means.
OF_A_SET = re.compile(r"-O([0-3s]|fast)?|-std=(c|gnu)\+\+(17|20|23|2a|2b)|-m(arch|tune)=native|-m(avx2?|avx512\w*|fma|f16c|sse[\d.]+)|"
                      r"-g|-pthread|-fPIC|-f(no-)?(fast-math|openmp|unroll-loops|math-errno|trapping-math|tree-vectorize|strict-aliasing|"
                      r"associative-math|finite-math-only|inline-functions|omit-frame-pointer)|-fvisibility=hidden")
OF_THE_TEXT = re.compile(r"-W[\w=-]*|-w|-D(?!NDEBUG)[A-Za-z]\w*(=.*)?")


def set_flags(extra_cflags):
    """Those that a set is made with. None: no set serves these flags."""
    if not isinstance(extra_cflags, (list, tuple, type(None))):  # what torch makes of it is not known here
        return None
    try:
        flags = own_headers.words(own_headers.as_list(extra_cflags))
    except own_headers.Unsuitable:
        return None
    kept = [flag for flag in flags if OF_A_SET.fullmatch(flag)]
    return kept if all(flag in kept or OF_THE_TEXT.fullmatch(flag) for flag in flags) else None


def folder_for(sets, flags):
    """The folder for -I of the set for these flags; None: there is none. `sets`: the beginning of their paths."""
    folder = f"{sets}-{hashlib.sha256(chr(10).join(flags).encode()).hexdigest()}"
    return folder if os.path.isfile(os.path.join(folder, PRECOMPILED)) else None


def attempts(sets, options, has_cuda):
    """The options of load_inline or load: with the folder of a set, and, for a set that g++ cannot read, without. Where there is
    none, and nvcc does not take longer anyway, a line on standard error asks for it."""
    flags = set_flags(options.get("extra_cflags"))
    folder = None if flags is None else folder_for(sets, flags)
    if folder:
        include = shlex.quote(f"-I{folder}").replace("$", "$$")  # for the shell, and for ninja
        return [{**options, "extra_cflags": [include, *own_headers.as_list(options.get("extra_cflags"))]}, options]
    if flags is not None and not has_cuda:
        with contextlib.suppress(OSError):
            os.write(2, f"\n{WANTED} {' '.join(flags)}\n".encode())
    return [options]


def make(flags, torch, compiler="c++"):
    """In the working folder, from the headers in the folder `torch`. Whether it succeeded."""
    if set_flags(flags) != flags:
        return False
    include = os.path.join(torch, "include")
    os.makedirs(os.path.dirname(HEADER), exist_ok=True)
    command = [compiler, "-DTORCH_API_INCLUDE_EXTENSION_H", *CXX_FLAGS, *flags]
    for folder in (include, os.path.join(include, "torch/csrc/api/include"),
                   sysconfig.get_path("include", scheme="posix_prefix")):
        command += ["-isystem", folder]
    command += ["-x", "c++-header", os.path.join(include, HEADER), "-o", PRECOMPILED]
    if subprocess.run(command, check=False).returncode != 0:
        return False
    with open(HEADER, "w", encoding="utf-8") as header:
        header.write(HEADER_TEXT)
    return True


if __name__ == "__main__":
    sys.exit(0 if make(sys.argv[1:], own_headers.torch_folder(), os.environ.get("CXX", "c++")) else 1)
