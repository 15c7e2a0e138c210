"""The share of published load_inline candidates that NVRTC can serve without nvcc, and the time of both.

    python3 tests/bench/nvrtc_share.py FOLDER|FILE.json ... [--most N --seed S] [--cuda /usr/local/cuda]

FOLDER holds candidates as .py files, FILE.json as strings at any depth of its values. Only calls whose arguments are constants of
the text are read (inline_calls.constant_calls). Candidates are parsed, never run. The text of each call (cuda.cu) is compiled
three times, one process at a time, after a small text for each compiler:
- nvcc: to an object for sm_90 with Kevin's headers, by the command of own_headers.Commands.
- g++: its host half with the same headers. Bodies of kernels and `__device__` functions are cut; a launch
  `name<T><<<grid, block>>>(args)` becomes `kevin_launch(grid, block), name<T>(args)`. The kernels that it launches, instances of
  templates included, are then undefined symbols of the object. A rewriting step would define them by launches through the
  driver; that step does not exist, and no object is linked or run.
- NVRTC: its device half (functions, declarations and headers of the host are blanked) to a cubin for sm_90 with -default-device
  and the few standard names of DEVICE_PRELUDE. The time is from nvrtcCreateProgram to nvrtcGetCUBIN, in a process that has
  loaded libnvrtc and compiled a small text. The instances of templates are those that the g++ object names.
A text is served if both halves compile, the cubin has each kernel of the text that is no template, each that the host half
launches and each that nvcc's object registers, and the host half needs nvcc for launches only: no kernel as a value
(cudaFuncSetAttribute), no copy to a `__constant__` symbol, no device lambda. A candidate is served if all its texts are.
Candidates without a launch, and those that nvcc with Kevin's headers refuses, are counted apart; main.cpp is not compiled. A
scan for braces, not a C++ parser, cuts the halves: raw strings and unbalanced #if mislead it, which counts as a refusal.
"""

import argparse
import collections
import ctypes
import hashlib
import json
import multiprocessing
import os
import random
import re
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True  # nothing is written into the folders of the sources
sys.path.insert(0, os.path.join(ROOT, "env/python"))
sys.path.append(os.path.join(ROOT, ".torch"))  # own_headers looks for the folder of torch; nothing imports torch

import inline_calls
import own_headers

LIMIT_S = 60
# Compilers run outside a sandbox here, so that only these options of candidates are passed on.
HARMLESS = re.compile(r"-O\d|-v|-std=c\+\+\d\d|-lcu\w+|-D\w+(=\w+)?|--?(use_fast_math|restrict|maxrregcount=\d+)|-lineinfo|"
                      r"--expt-[\w-]+|(-Xptxas=?|--ptxas-options=)(-v|-O\d)?|--?(ftz|fmad|prec-div|prec-sqrt)=\w+")
NOT_OF_NVRTC = re.compile(r"-O\d|--expt-.*|-lcu.*|-v|-Xptxas.*|--ptxas.*|-std=.*")
HOST_HEADERS = re.compile(r"(?:cuda(?:_runtime(?:_api)?)?|cu(?:blas|dnn|fft|sparse|solver)\w*|curand)\.h")
HOST_NAMES = re.compile(r"\b(?:torch|at|c10|py|pybind11)::|\bnamespace\s+(?:torch|at|c10)\b|\bcu(?:blas|dnn|da[A-Z])|"
                        r"\bTensor\b|\bstd::(?:vector|string|tuple|pair|\w*map|mutex|once_flag|function|\w+_ptr)\b")
NO_BODY = re.compile(r"=\s*$|\b(?:enum|struct|class|union)\b(?:[^()]|\b__\w+__\s*\([^()]*\))*$")  # before `{`
LAUNCH = re.compile(r"([\w:]+)(\s*<[^;{}()]*>)?\s*<<<((?:[^()]|\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))*?)>>>")
DEFINES = """-DINT_MAX=2147483647 -DFLT_MAX=3.402823466e+38f -DFLT_MIN=1.175494351e-38f -DFLT_EPSILON=1.192092896e-07f
-DDBL_MAX=1.7976931348623158e+308 -DM_PI=3.14159265358979323846 -DM_SQRT2=1.41421356237309504880 -DM_2_SQRTPI=1.12837916709551257
-DM_SQRT1_2=0.707106781186547524 -DINFINITY=__builtin_bit_cast(float,0x7f800000u) -DNAN=__builtin_bit_cast(float,0x7fc00000u)"""
# LONG: the 64-bit type of the host, or that of CCCL's own <cuda/std/cstdint>.
DEVICE_PRELUDE = r"""
typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef LONG int64_t; typedef unsigned LONG uintptr_t;
typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned uint32_t; typedef unsigned LONG uint64_t;
namespace std {
using ::abs; using ::exp; using ::log; using ::sqrt; using ::pow; using ::tanh; using ::fmax; using ::fmin; using ::erf;
template <class T> constexpr const T& min(const T& a, const T& b) { return b < a ? b : a; }
template <class T> constexpr const T& max(const T& a, const T& b) { return a < b ? b : a; }
template <class T> struct numeric_limits { static_assert(T(0.5) != T(0)); static constexpr T infinity() { return INFINITY; }
  static constexpr T max() { return sizeof(T) == 8 ? DBL_MAX : FLT_MAX; } static constexpr T lowest() { return -max(); } };
}
#line 1 "cuda.cu"
"""
# What only nvcc declares for the host, and the call that stands for `<<<`.
HOST_PRELUDE = ("#include <cuda_runtime.h>\n#undef __launch_bounds__\n#define __launch_bounds__(...)\nnamespace nvcuda::wmma {}\n"
                "namespace cooperative_groups {}\nvoid kevin_launch(dim3, dim3, size_t = 0, cudaStream_t = 0);\n") + "".join(
    f"inline {t} {f}({t} a, {t} b) {{ return a {o} b ? a : b; }}\n" for f, o in (("min", "<"), ("max", ">"))
    for t in ("int", "unsigned", "long", "unsigned long", "long long", "unsigned long long", "float", "double"))
WARM_UP = "__global__ void warm(float* x) { x[threadIdx.x] = 1; }\n"

Row = collections.namedtuple("Row", "launches nvrtc host nvcc error nvcc_error")  # seconds; "": no error
FIGURES = (("NVRTC", lambda row: row.nvrtc), ("g++", lambda row: row.host), ("both", lambda row: row.nvrtc + row.host),
           ("nvcc", lambda row: row.nvcc), ("nvcc / NVRTC", lambda row: row.nvcc / row.nvrtc))


def blank(match):
    return re.sub(r"[^\n]", " ", match[0])


def cut(text, begin, end):
    """With blanks instead of a part; its directives stay, since other parts may need them."""
    kept = re.sub(r"^(?!\s*#\s*(?:define|undef|if|el|endif)).*", blank, text[begin:end], flags=re.MULTILINE)
    return text[:begin] + kept + text[end:]


def pieces(text):
    """(begin, begin of a function's body or -1, end) of functions, classes and declarations of a text; in namespaces too."""
    begin, body, depth = 0, -1, 0
    for match in re.finditer(r"[][(){};]", text):
        at, character, head = match.start(), match[0], text[begin:match.start()]
        if depth == 0 and (character == "}" or character == "{" and re.search(r"\bnamespace\b[^;(]*$|\bextern\s*$", head)):
            begin = at + 1
            continue
        if depth == 0 and character == "{" and not re.search(NO_BODY, head):
            body = at
        depth = max(0, depth + (character in "([{") - (character in ")]}"))
        if depth == 0 and (character == ";" or character == "}" and body >= 0):
            yield begin + len(head) - len(head.lstrip()), body, at + 1
            begin, body = at + 1, -1


def halves(text):
    """(device half, host half, kernels, those that are templates, why the host half needs nvcc)."""
    device, host, of_host, kernels, templates = text, text, "", set(), set()
    bare = own_headers.blanked(re.sub(r"(?<!\w)'[^'\\\w]'", "' '", text))  # of the same length, as all that follows
    bare = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", blank, bare, flags=re.MULTILINE)
    for begin, body, end in pieces(bare):
        head = bare[begin:body if body >= 0 else end]
        words = set(re.findall(r"\w+", head))
        if body < 0:
            if HOST_NAMES.search(head) and not words & {"__device__", "__global__", "__constant__"}:
                device = cut(device, begin, end)
        elif "__global__" in words:
            name = re.findall(r"\b(?!__)(\w+)\s*\(", head)[:1]
            kernels.update(name)
            templates.update(name if "template" in words else ())
            host = cut(host[:body] + ";" + host[body + 1:], body + 1, end)
        elif "__device__" in words and "__host__" not in words:
            host = cut(host, begin, end)
        elif not words & {"__device__", "constexpr"}:
            device = cut(device, begin, end)
            of_host += bare[begin:end]
    host, of_host = LAUNCH.sub(r"::kevin_launch(\3), \1\2", host), LAUNCH.sub(r"\1\2 <", of_host)
    checks = [("a kernel as a value", r"[&(,=)]\s*" + name + r"\s*(?:<[^;{}()]*>)?\s*[,);]") for name in sorted(kernels)]
    checks += [("a device lambda", r"__(?:device|shared|global)__"), ("a copy to a symbol", r"\bcuda\w+Symbol"),
               ("a launch of an expression", "<<<")]
    refusals = [f"{reason}: {found[0]}" for reason, pattern in checks for found in re.finditer(pattern, of_host)]
    return device, host, kernels, templates, "".join(refusals[:1])


def device_text(half, cuda):
    """Without headers of the host, behind the prelude."""
    def kept(match):
        exists = any(os.path.exists(os.path.join(cuda, "include", folder, match[1])) for folder in ("", "cccl"))
        return match[0] if exists and not HOST_HEADERS.fullmatch(match[1]) else ""
    text = re.sub(r"^[ \t]*#[ \t]*include[ \t]*[<\"]([^>\"\n]*)[>\"]", kept, half, flags=re.MULTILINE)
    is_cccl = re.search(r"include\s*<(?:cooperative_groups|cuda/|cub/|thrust/)", text)
    return DEVICE_PRELUDE.replace("LONG", "long long" if is_cccl else "long") + text


def timed(command, folder):
    """(seconds, what it says, whether it succeeds)."""
    begin = time.monotonic()
    environment = {"PATH": os.environ["PATH"], "HOME": folder, "TMPDIR": folder, "LC_ALL": "C"}
    done = subprocess.run(["timeout", "-s", "KILL", str(LIMIT_S), *command], cwd=folder, stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace", env=environment, check=False)
    return time.monotonic() - begin, done.stdout, done.returncode == 0


def in_nvrtc(cuda, text, options, names):
    """(seconds, log, cubin; b"" where it fails)."""
    library, program, size = ctypes.CDLL(os.path.join(cuda, "lib64/libnvrtc.so")), ctypes.c_void_p(), ctypes.c_size_t()
    def answer(function):
        getattr(library, function + "Size")(program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        getattr(library, function)(program, buffer)
        return buffer.raw
    options = ["-arch=sm_90", "-default-device", f"-I{cuda}/include", f"-I{cuda}/include/cccl", *options]
    begin = time.monotonic()
    library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"cuda.cu", 0, None, None)
    for name in names:
        library.nvrtcAddNameExpression(program, name.encode())
    failed = library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*map(str.encode, options)))
    cubin = b"" if failed else answer("nvrtcGetCUBIN")
    seconds, log = time.monotonic() - begin, answer("nvrtcGetProgramLog").decode(errors="replace")
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return seconds, log, cubin


def demangled(names):
    return subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout.split("\n")


def expression(kernel):
    """`void a::k<float>(float*)` to the name expression `a::k<float>`."""
    match = re.match(r"(?:void )?([\w:]+(?:<.*>)?)\(", kernel.replace("(anonymous namespace)::", ""))
    return match[1] if match else kernel


def base(kernel):
    return expression(kernel).split("<")[0].split("::")[-1]


def first_error(log):
    lines = re.findall(r"^.*\b(?:error|fatal)\b.*", log, re.MULTILINE) or ["it takes too long or crashes"]
    return re.sub(r"^.*?\.\w+[(:]\d+[):]\S* *(?:error: )?", "", lines[0])[:120]


def measure(pool, cuda, folder, name, cpp, cuda_sources, options):
    """The row of one call of load_inline."""
    main_text, text = own_headers.texts_of(cpp, cuda_sources, options)
    commands = own_headers.Commands(name, options, folder, True)
    device, host, kernels, templates, refusal = halves(text)
    flags = commands.cuda_flags + own_headers.NVCC_FLAGS
    if not all(map(HARMLESS.fullmatch, commands.cuda_flags)):
        raise own_headers.Unsuitable("options " + " ".join(commands.cuda_flags))
    for file, content in (("cuda.cu", text), ("host.cpp", HOST_PRELUDE + '#line 1 "cuda.cu"\n' + host)):
        with open(os.path.join(folder, file), "w", encoding="utf-8") as out:
            out.write(content)
    of_cpp = [commands.cxx, "-std=c++17", "-fPIC", "-w", "-c", "host.cpp", "-o", "host.o", *commands.common,
              *(flag for flag in flags if re.match("-[DO]", flag))]
    results = []
    for command in (commands.cuda, lambda more: of_cpp + more):
        runs = [timed(command(own_headers.parts_for(main_text + text)), folder)]
        if not runs[0][2]:  # as own_headers.compile_inline does
            runs.append(timed(command(own_headers.EVERYTHING), folder))
        results.append((sum(run[0] for run in runs), *runs[-1][1:]))
    (nvcc_s, nvcc_log, nvcc_works), (host_s, host_log, host_works) = results
    listings = [timed(["nm", "-u", "-P", "host.o"], folder)[1],
                timed(["readelf", *(f"-p.rodata{part}" for part in ("", ".str1.1", ".str1.8")), "cuda.cuda.o"], folder)[1]]
    symbols = demangled(re.findall(r"^(?: *\[ *\w+\] +)?(\w+)", "\n".join(listings), re.MULTILINE))
    wanted = {symbol for symbol in symbols if "(" in symbol and base(symbol) in kernels}  # others may be texts of messages
    names = sorted(expression(kernel) for kernel in wanted if base(kernel) in templates)
    flags = [flag for flag in flags + DEFINES.split() if not NOT_OF_NVRTC.fullmatch(flag)] + ["-std=c++17"]
    try:
        seconds, log, cubin = pool.apply_async(in_nvrtc, (cuda, device_text(device, cuda), flags, names)).get(LIMIT_S)
    except multiprocessing.TimeoutError:
        multiprocessing.active_children()[0].kill()  # the pool starts another one
        seconds, log, cubin = LIMIT_S, "", b""
    built = set(demangled(re.findall(r"\.nv\.constant0\.([\w$]+)", cubin.decode("latin-1"))))
    absent = wanted - built | kernels - templates - {base(kernel) for kernel in built}
    device_error = "" if cubin and not absent else "the cubin lacks " + ", ".join(absent) if cubin else first_error(log)
    errors = ("device: ", device_error), ("host: ", refusal), ("host: g++: ", "" if host_works else first_error(host_log))
    error = next((half + what for half, what in errors if what), "")
    launches = own_headers.blanked(text).count("<<<")
    return Row(launches, seconds, host_s, nvcc_s, error, "" if nvcc_works else first_error(nvcc_log))


def candidates(paths):
    """{hash: calls with cuda_sources}, and how many distinct texts call load_inline in all."""
    texts, decoder, values = [], json.JSONDecoder(), []
    for path in paths:
        for file in sorted(os.path.join(path, name) for name in os.listdir(path)) if os.path.isdir(path) else [path]:
            with open(file, encoding="utf-8", errors="replace") as opened:
                rest = opened.read().strip()
            while rest and file.endswith(".json"):
                value, end = decoder.raw_decode(rest)
                values, rest = values + [value], rest[end:].lstrip()
            texts += [rest] if file.endswith(".py") else []
    while values:
        value = values.pop()
        values += value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
        texts += [value] if isinstance(value, str) else []
    texts = {hashlib.sha256(text.encode()).hexdigest()[:12]: text for text in texts if "load_inline" in text}
    calls = {key: [call for call in inline_calls.constant_calls(text) if call[2]] for key, text in texts.items()}
    return {key: found for key, found in calls.items() if found}, len(texts)


def spread(values):
    values = sorted(values) or [float("nan")]
    median, p90 = (values[round(part * (len(values) - 1))] for part in (0.5, 0.9))
    return f"median {median:.3f} p90 {p90:.3f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+")
    parser.add_argument("--most", type=int, default=sys.maxsize, help="so many candidates, drawn at random")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cuda", default="/usr/local/cuda")
    given = parser.parse_args()
    os.environ.update(CUDA_HOME=given.cuda, TORCH_CUDA_ARCH_LIST="9.0")
    found, total = candidates(given.paths)
    chosen = random.Random(given.seed).sample(sorted(found), min(given.most, len(found)))
    errors, rows_of = {"served": [], "refused": [], "not tried": []}, collections.defaultdict(list)
    with multiprocessing.Pool(1, in_nvrtc, (given.cuda, WARM_UP, [], [])) as pool, tempfile.TemporaryDirectory() as root:
        for key, calls in [("warm-up", [("warm", "", WARM_UP, {})]), *((key, found[key]) for key in chosen)]:
            try:
                rows, error = [measure(pool, given.cuda, tempfile.mkdtemp(dir=root), *call) for call in calls], ""
            except (own_headers.Unsuitable, TypeError, ValueError) as unsuitable:
                rows, error = [], str(unsuitable)
            error = next((row.error for row in rows if row.error), error)
            nvcc_error = next((row.nvcc_error for row in rows if row.nvcc_error), "")
            state = ("not tried" if not rows else "without a launch" if not any(row.launches for row in rows) else
                     "refused by nvcc" if nvcc_error else "refused" if error else "served")
            print(f"{key} {state}: {error or '-'}; nvcc: {nvcc_error or '-'};", *(f"{row.launches} launches, "
                  f"NVRTC {row.nvrtc:.3f} g++ {row.host:.3f} nvcc {row.nvcc:.3f} s" for row in rows), flush=True)
            if key != "warm-up":
                errors.setdefault(state, []).append(error)
                rows_of[state] += rows
    served, of = len(errors["served"]), len(errors["served"] + errors["refused"])
    print(f"{total} distinct texts call load_inline, {len(found)} with constant arguments and cuda_sources; {len(chosen)} drawn:",
          ", ".join(f"{len(each)} {state}" for state, each in sorted(errors.items())))
    print(f"NVRTC serves {served} of {of} candidates, {served / max(of, 1):.1%}; the device half of",
          served + sum(not error.startswith("device") for error in errors["refused"]))
    for state, rows in sorted(rows_of.items()):
        print(len(rows), "texts", state, "in s:", "; ".join(f"{name} {spread(map(figure, rows))}" for name, figure in FIGURES))
    for error, count in collections.Counter(errors["refused"] + errors["not tried"]).most_common():
        print(f"{count} refused: {error}")


if __name__ == "__main__":
    main()
