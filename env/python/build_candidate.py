#!/usr/bin/env python3
"""Compiles what a candidate in Python compiles when it is imported, in the sandbox of compilers.

    build_candidate.py KIND LIBRARY own|torch HEADERS   in a folder with candidate.py; writes candidate.so, a bundle
    (caller.unpack)

Without a call of torch.utils.cpp_extension in the text nothing is imported. Ends with 1, and the message for the
candidate's author on standard error, where the text is no Python, or its import fails, or a compiler refuses. Before the
candidate's import it prints the line IMPORTED: whatever the process does afterwards, its exit status included, may be the
candidate's doing. LIBRARY is kevin-python-worker.so. `own`: load_inline tries Kevin's own headers first, from before torch is imported where its arguments
stand in the text; `torch`: torch's headers only, as for a winner that is measured again. HEADERS: the beginning of the
paths of torch's headers in precompiled form (torch_headers.py).
"""

import ast
import copy
import glob
import json
import os
import re
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE, BUNDLE = "candidate.py", "candidate.so"  # the second is the name of everything that is compiled
USES_COMPILER = re.compile(r"cpp_extension|load_inline")
MOST_LINES = 60
CANNOT_START = 70  # no fault of the text
IMPORTED = "kevin-build: the candidate is imported now"  # as in python_kind.cc
ARCH_WITHOUT_GPU = "9.0"  # CUDA is compiled here and runs elsewhere; torch alone would ask the GPU, of which there is none


class CompilerFailed(BaseException):
    """Not an Exception: a candidate must not go on without its extension."""


def compiler_lines(text):
    """The compiler's own lines of ninja's output."""
    noise = ("ninja:", "[", "FAILED:", "Error building extension", "subprocess.CalledProcessError")
    everything = [line for line in text.splitlines() if line.strip()]
    lines = [line for line in everything if not line.startswith(noise)]
    lines = [line for line in lines if not re.match(r"^\S*(c\+\+|g\+\+|nvcc|clang\+\+)\S* .*-c ", line)]
    if not lines:  # a compiler that was killed says nothing itself
        return "\n".join(["the compiler printed nothing and did not succeed", *everything[-2:]])
    first = next((i for i, line in enumerate(lines) if "error" in line.lower()), 0)
    return "\n".join(lines[max(0, first - 3):first + MOST_LINES])


def fail(message, status=1):
    print(message, file=sys.stderr, flush=True)
    os._exit(status)


def write_bundle(kind, source, compiled, files, asked=()):
    """`asked`: for rebuild_extensions.py."""
    contents = [("candidate.py", source), *files]
    header = {"files": [{"name": name, "bytes": len(content)} for name, content in contents], "extensions": compiled,
              "kind": kind, "asked": list(asked)}
    with open(BUNDLE, "wb") as out:
        out.write(json.dumps(header).encode() + b"\n")
        for _, content in contents:
            out.write(content)


class OwnHeaders:
    """Compiles with own_headers.py, each call once: those of the text begin at once, beside the import of torch."""

    def __init__(self):
        self.started = {}  # key to (thread, result)

    def start(self, key, name, cpp_sources, cuda_sources, options):
        if key in self.started:
            return
        folder = os.path.abspath(f"own-{key}")
        os.makedirs(folder, exist_ok=True)
        result = {}
        thread = threading.Thread(target=self.work, daemon=True,
                                  args=(result, name, cpp_sources, cuda_sources, options, folder))
        self.started[key] = (thread, result)
        thread.start()

    @staticmethod
    def work(result, *arguments):
        import own_headers
        try:
            result["library"] = own_headers.compile_inline(*arguments)
        except own_headers.DoesNotCompile as error:
            result["log"] = str(error)
        except Exception as error:  # Unsuitable, or what only torch's load_inline explains
            result["reason"] = str(error)

    def start_all(self, calls):
        import extensions
        for name, cpp_sources, cuda_sources, options in calls:
            key = extensions.inline_key(name, cpp_sources, cuda_sources, options)
            self.start(key, name, cpp_sources, cuda_sources, options)

    def result(self, key, *call):
        self.start(key, *call)
        thread, result = self.started[key]
        thread.join()
        return result


def frozen(**call):
    """A call's arguments as JSON has them, before torch adds to the caller's lists. None: they are no JSON, and are not asked for
    again."""
    try:
        return json.loads(json.dumps(call, ensure_ascii=False).encode())
    except (TypeError, ValueError):
        return None


def texts_of(paths):
    texts = {}
    for path in paths:
        with open(path, encoding="utf-8", errors="replace") as file:
            texts[os.path.abspath(path)] = file.read()
    return texts


class Builder:
    """The replacements of load_inline and load: they compile, keep the library and return the module."""

    def __init__(self, cpp_extension, own, headers):
        self.inline, self.files = cpp_extension.load_inline, cpp_extension.load
        self.own = own  # None: torch's headers only
        self.headers = headers  # of torch, in precompiled form
        self.compiled, self.libraries, self.asked = {}, [], []

    def keep(self, keys, library, name, is_own, call):
        """`keys`: with the extension's name, and without it. `call`: frozen."""
        if "file" in self.compiled.get(keys[0], ()):  # the same call once more
            return
        file = f"own-{keys[0]}-{len(self.libraries)}.so"  # the name tells the evaluator whose code it is
        if call is not None:
            self.asked.append({"file": file, "own": is_own, **call})
        self.compiled[keys[0]] = {"file": file, "name": name, "own": is_own}
        self.compiled.setdefault(keys[1], self.compiled[keys[0]])
        with open(library, "rb") as built:  # before the candidate's code goes on
            self.libraries.append((file, built.read()))

    def build(self, keys, name, call, attempts, work):
        """`work` makes the module with the options of an attempt; the first that does not fail counts, else the last."""
        folder = os.path.abspath(f"build-{keys[0]}")
        os.makedirs(folder, exist_ok=True)
        for options in attempts:
            try:
                module = work({**copy.deepcopy(options), "build_directory": folder, "verbose": False})
                break
            except RuntimeError as error:
                if options is attempts[-1]:
                    raise CompilerFailed(f"extension {name} does not compile:\n{compiler_lines(str(error))}") from error
        library = max(glob.glob(os.path.join(folder, "*.so")), key=os.path.getmtime)
        if call is not None:
            call["set"] = options is not attempts[-1]
        self.keep(keys, library, os.path.basename(library).split(".")[0], False, call)
        return module

    def with_own_headers(self, keys, name, cpp_sources, cuda_sources, options):
        """The module, or None: torch's headers decide."""
        import extensions
        import own_headers
        result = self.own.result(keys[0], name, cpp_sources, cuda_sources, options)
        if "log" in result:
            raise CompilerFailed(f"extension {name} does not compile:\n{compiler_lines(result['log'])}")
        if "library" not in result:
            return None
        try:
            module = extensions.bind(name, result["library"])
        except ImportError:
            return None
        except OSError as error:
            missing = own_headers.own_undefined(str(error))
            if missing is None:
                return None
            raise CompilerFailed(f"extension {name} is not complete: {missing} is declared, and nowhere defined") from error
        call = frozen(name=name, cpp_sources=cpp_sources, cuda_sources=cuda_sources, options=options)
        self.keep(keys, result["library"], name, True, call)
        return module

    def load_inline(self, name, cpp_sources, cuda_sources=None, **options):
        import extensions
        import torch_headers
        keys = [extensions.inline_key(known, cpp_sources, cuda_sources, options) for known in (name, None)]
        kept = {k: v for k, v in options.items() if k not in extensions.IGNORED}
        module = self.with_own_headers(keys, name, cpp_sources, cuda_sources, kept) if self.own else None
        if module is not None:
            return module
        attempts = torch_headers.attempts(self.headers, kept, bool(cuda_sources))
        call = frozen(name=name, cpp_sources=cpp_sources, cuda_sources=cuda_sources, options=kept)

        def work(options):
            return self.inline(name, copy.copy(cpp_sources), copy.copy(cuda_sources), **options)

        return self.build(keys, name, call, attempts, work)

    def compile_rest(self, calls):
        """Those that the import has not made: a constructor or `forward` may. What fails is told to the call that asks for
        it, if there is one."""
        import extensions
        for name, cpp_sources, cuda_sources, options in calls:
            key = extensions.inline_key(name, cpp_sources, cuda_sources, options)
            if key in self.compiled:
                continue
            try:
                self.load_inline(name, cpp_sources, cuda_sources, **options)
            except (CompilerFailed, Exception) as error:
                message = str(error) if isinstance(error, CompilerFailed) else f"extension {name}: {error!r}"
                self.compiled[key] = {"name": name, "error": message}

    def load(self, name, sources, **options):
        import extensions
        import torch_headers
        keys = [extensions.files_key(known, sources, options) for known in (name, None)]
        kept = {k: v for k, v in options.items() if k not in extensions.IGNORED}
        has_cuda = any(str(path).endswith(".cu") for path in extensions.as_list(sources))
        attempts = torch_headers.attempts(self.headers, kept, has_cuda)
        call = frozen(name=name, files=texts_of(extensions.as_list(sources)), options=kept)
        return self.build(keys, name, call, attempts, lambda options: self.files(name, sources, **options))


def main():
    with open(SOURCE, "rb") as file:
        source = file.read()
    try:
        ast.parse(source, SOURCE)
    except (SyntaxError, ValueError) as error:
        line = f"line {error.lineno}: " if getattr(error, "lineno", None) else ""
        text = (getattr(error, "text", None) or "").strip()
        fail(f"{line}{type(error).__name__}: {getattr(error, 'msg', error)}" + (f"\n    {text}" if text else ""))
    compiled, libraries, asked = {}, [], []
    if USES_COMPILER.search(source.decode(errors="replace")):
        sys.path.insert(0, HERE)
        os.environ.setdefault("TORCH_CUDA_ARCH_LIST", ARCH_WITHOUT_GPU)
        own = OwnHeaders() if sys.argv[3] == "own" else None
        import inline_calls
        calls = inline_calls.constant_calls(source)
        if own:
            own.start_all(calls)
        try:
            import torch
            torch.cuda.is_available = lambda: False  # cpp_extension asks; there is no GPU in this sandbox
            import caller
            import extensions
            import torch.utils.cpp_extension as cpp_extension
        except BaseException as error:
            fail(f"this Python cannot import torch: {type(error).__name__}: {error}", CANNOT_START)
        extensions.prepare(sys.argv[2])
        builder = Builder(cpp_extension, own, sys.argv[4])
        extensions.install(builder.load_inline, builder.load)
        os.write(2, f"\n{IMPORTED}\n".encode())
        try:
            caller.import_candidate(os.path.abspath(SOURCE))
            builder.compile_rest(calls)
        except CompilerFailed as error:
            fail(str(error))
        except BaseException as error:
            fail(caller.describe(error))
        compiled, libraries, asked = builder.compiled, builder.libraries, builder.asked
    write_bundle(sys.argv[1], source, compiled, libraries, asked)
    sys.stdout.flush()
    os._exit(0)  # without the ends of the extensions, which may want a GPU


if __name__ == "__main__":
    main()
