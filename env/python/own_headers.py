"""load_inline with Kevin's own headers (headers/): seconds instead of a minute.

The same texts as torch.utils.cpp_extension.load_inline writes are compiled, with the same flags, but torch's headers are
replaced by a subset of their declarations over a table of functions, and pybind11 by a table of the functions that are bound.
What the subset does not have does not compile; then, and where an option is not known here, the caller compiles with torch's
own headers, whose result counts. An error that torch's headers cannot change is final (`certain`).

Nothing here imports torch.
"""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sysconfig

HERE = os.path.dirname(os.path.abspath(__file__))
HEADERS = os.path.join(HERE, "headers")
MOST_OUTPUT = 1 << 20
KNOWN = {"functions", "extra_cflags", "extra_cuda_cflags", "extra_ldflags", "extra_include_paths", "with_cuda", "verbose",
         "build_directory", "is_python_module", "no_implicit_headers", "keep_intermediates", "use_pch"}
NVCC_FLAGS = ["-D__CUDA_NO_HALF_OPERATORS__", "-D__CUDA_NO_HALF_CONVERSIONS__", "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
              "-D__CUDA_NO_HALF2_OPERATORS__", "--expt-relaxed-constexpr"]


# What the least of the headers serves (headers/kevin/basics.h). A text that uses more gets more, at the price of parsing it.
LEAST_OF_STD = set("""vector string to_string max min tuple make_tuple get tie pair make_pair optional nullopt move forward swap
numeric_limits runtime_error invalid_argument logic_error exception initializer_list size_t ptrdiff_t int8_t int16_t int32_t
int64_t uint8_t uint16_t uint32_t uint64_t abs sqrt cbrt exp exp2 expm1 log log2 log10 log1p pow floor ceil round trunc fabs
fabsf fmax fmin fma fmod isnan isinf isfinite erf erfc tanh sinh cosh sin cos tan atan asin acos atan2 hypot ldexp sqrtf expf
is_same is_same_v enable_if enable_if_t conditional conditional_t is_integral is_floating_point remove_const
remove_reference decay declval true_type false_type integral_constant memcpy memset strcmp printf snprintf""".split())
OPERATORS = re.compile(r"""(?:\.|->|\b(?:torch|at)::)(?:abs_?|add_?|addmm|amax|bmm|cat|conv\w+|copy_|cpu|cuda|cumsum|detach|div_?|exp_?|
expand(?:_as)?|flatten|flip|gelu|item|linear|log_?|log_softmax|logsumexp|matmul|max|mean|min|mm|mul_?|narrow|neg_?|permute|pow|
relu_?|repeat|reshape(?:_as)?|rsqrt_?|select|sigmoid_?|slice|softmax|sqrt_?|squeeze|stack|sub_?|sum|t|tanh_?|to|transpose|
unsqueeze|view(?:_as)?)\s*[(<]""".replace("\n", ""))
HEADERONLY = re.compile(r"Half|BFloat16|[aA]ccessor|AND_HALF|_AND2?\(|PtrTraits|REDUCED_FLOATING")
EVERYTHING = ["-DKEVIN_STANDARD", "-DKEVIN_HEADERONLY", "-DKEVIN_OPERATORS"]


def parts_for(text):
    used = set(re.findall(r"\bstd::(\w+)", text))
    wanted = [used - LEAST_OF_STD or "using namespace std" in text, HEADERONLY.search(text), OPERATORS.search(text)]
    return [part for part, is_wanted in zip(EVERYTHING, wanted) if is_wanted]


class Unsuitable(Exception):
    """Needs torch's own headers. `log`: what a compiler said."""

    def __init__(self, reason, log=""):
        super().__init__(reason)
        self.log = log


class DoesNotCompile(Exception):
    """Nor would it with torch's own headers."""


def torch_folder():
    return importlib.util.find_spec("torch").submodule_search_locations[0]


def cuda_folder():
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    return os.environ.get("CUDA_HOME") or os.path.dirname(os.path.dirname(os.path.realpath(nvcc)))


def as_list(value):
    return [value] if isinstance(value, str) else list(value or [])


def words(flags):
    """Flags as the shell of ninja's commands splits them."""
    try:
        return shlex.split(" ".join(flag.strip() for flag in flags))
    except (ValueError, AttributeError, TypeError) as error:
        raise Unsuitable(f"flags: {error}") from error


def arch_flags(given):
    """-gencode flags as torch makes them of TORCH_CUDA_ARCH_LIST."""
    if any("arch" in flag for flag in given):
        return []
    flags = set()
    for arch in os.environ.get("TORCH_CUDA_ARCH_LIST", "").replace(" ", ";").split(";"):
        match = re.fullmatch(r"(\d+)\.(\d+a?)(\+PTX)?", arch)
        if not match:
            raise Unsuitable("TORCH_CUDA_ARCH_LIST names no architecture by number")
        number = match[1] + match[2]
        flags.add(f"-gencode=arch=compute_{number},code=sm_{number}")
        if match[3]:
            flags.add(f"-gencode=arch=compute_{number},code=compute_{number}")
    return sorted(flags)


def texts_of(cpp_sources, cuda_sources, options):
    """main.cpp and cuda.cu (None: no such file) as load_inline writes them."""
    implicit = not options.get("no_implicit_headers")
    cpp = (["#include <torch/extension.h>"] if implicit else []) + as_list(cpp_sources)
    functions = options.get("functions")
    if functions is not None:
        functions = [functions] if isinstance(functions, str) else functions
        if not isinstance(functions, (list, dict)):
            raise Unsuitable("functions is neither a list nor a dict")
        named = functions if isinstance(functions, dict) else {name: name for name in functions}
        cpp += ["PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {"]
        cpp += [f'm.def("{name}", {name}, "{text}");' for name, text in named.items()] + ["}"]
    cuda = as_list(cuda_sources)
    if cuda and implicit:
        cuda = ["#include <torch/types.h>", "#include <cuda.h>", "#include <cuda_runtime.h>"] + cuda
    return "\n".join(cpp), "\n".join(cuda) if cuda else None


class Commands:
    def __init__(self, name, options, folder, has_cuda):
        if set(options) - KNOWN or not options.get("is_python_module", True) or as_list(options.get("extra_include_paths")):
            raise Unsuitable("an option that only torch's own load_inline knows")
        if not re.fullmatch(r"[A-Za-z_]\w*", name or ""):
            raise Unsuitable("the name is no identifier")
        self.name, self.folder, self.torch = name, folder, torch_folder()
        with_cuda = options.get("with_cuda")
        self.with_cuda = has_cuda if with_cuda is None else bool(with_cuda)
        if has_cuda and not self.with_cuda:
            raise Unsuitable("cuda_sources with with_cuda=False")
        self.cxx = os.environ.get("CXX", "c++")
        only = os.path.join(folder, "headeronly", "torch")  # of torch's include folder, only what needs no library of torch
        os.makedirs(only, exist_ok=True)
        if not os.path.lexists(os.path.join(only, "headeronly")):
            os.symlink(os.path.join(self.torch, "include/torch/headeronly"), os.path.join(only, "headeronly"))
        includes = [HEADERS, os.path.dirname(only)] + ([os.path.join(cuda_folder(), "include")] if self.with_cuda else [])
        self.common = [f"-DTORCH_EXTENSION_NAME={name}", "-DTORCH_API_INCLUDE_EXTENSION_H"]
        for include in includes:
            self.common += ["-isystem", include]
        self.cflags = words(as_list(options.get("extra_cflags")))
        self.cuda_flags = words(as_list(options.get("extra_cuda_cflags")))
        self.ldflags = words(as_list(options.get("extra_ldflags")))

    def cpp(self, parts):
        return [self.cxx, *self.common, *parts, "-fPIC", "-std=c++17", *self.cflags, "-c", "main.cpp", "-o", "main.o"]

    def cuda(self, parts):
        standard = [] if any(flag.startswith("-std=") for flag in self.cuda_flags) else ["-std=c++17"]
        return [os.path.join(cuda_folder(), "bin/nvcc"), *self.common, *parts, *NVCC_FLAGS, *arch_flags(self.cuda_flags),
                "--compiler-options", "-fPIC", *self.cuda_flags, *standard, "-c", "cuda.cu", "-o", "cuda.cuda.o"]

    def link(self, objects):
        """With torch's libraries, as load_inline does: symbols of what they need (cuBLAS) are found in them."""
        cuda = self.with_cuda
        flags = [f"-L{self.torch}/lib", "-lc10", *(["-lc10_cuda"] if cuda else []), "-ltorch_cpu",
                 *(["-ltorch_cuda"] if cuda else []), "-ltorch", "-ltorch_python"]
        if cuda:
            flags += [f"-L{cuda_folder()}/lib64", "-lcudart"]
        return [self.cxx, *objects, "-shared", *self.ldflags, *flags, "-o", self.name + ".so"]


def start(command, folder):
    try:
        return subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, errors="replace")
    except OSError as error:
        raise Unsuitable(f"{command[0]}: {error.strerror}") from error


def compile_inline(name, cpp_sources, cuda_sources, options, folder):
    """The path of the extension. Raises Unsuitable or DoesNotCompile."""
    main, cuda = texts_of(cpp_sources, cuda_sources, options)
    commands = Commands(name, options, folder, cuda is not None)
    for file, text in (("main.cpp", main), ("cuda.cu", cuda)):
        if text is not None:
            with open(os.path.join(folder, file), "w", encoding="utf-8") as out:
                out.write(text)
    parts = parts_for(main + (cuda or ""))
    for attempt in (parts, EVERYTHING):
        logs = compile_parts(commands, attempt, cuda is not None)
        if not logs:
            break
        require_uncertain(logs, commands)
        if attempt == EVERYTHING:
            raise Unsuitable("it does not compile with Kevin's headers", "\n".join(logs))
    linking = start(commands.link(["main.o"] + (["cuda.cuda.o"] if cuda is not None else [])), folder)
    log = linking.communicate()[0]
    if linking.returncode:
        raise Unsuitable("it does not link", log)
    return os.path.join(folder, name + ".so")


def compile_parts(commands, parts, has_cuda):
    """Both texts at once. What those compilers say that fail."""
    running = [start(commands.cpp(parts), commands.folder)]
    if has_cuda:
        running.append(start(commands.cuda(parts), commands.folder))
    logs = [process.communicate()[0][:MOST_OUTPUT] for process in running]
    return [log or "it fails" for log, process in zip(logs, running) if process.returncode]


UNDECLARED = (re.compile(r'error: identifier "(?:[\w:]*::)?(\w+)" is undefined'),
              re.compile(r"error: ['‘](?:[\w:]*::)?(\w+)['’] was not declared in this scope"))
ABSENT = re.compile(r"fatal error: (\S+?):? No such file")
INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"][^>\"\n]*[>\"]", re.MULTILINE)
PREPROCESSING_LIMIT_S = 60
AS_NVCC = ["-D__CUDACC__", "-D__NVCC__", "-D__CUDACC_VER_MAJOR__=13", "-D__CUDACC_VER_MINOR__=0"]


FIRST_ERROR = re.compile(r"^[^\n]*\berror: .*(?:\n[ \t]+.*)*", re.MULTILINE)
ERROR_IN_CUDA = re.compile(r"^cuda\.cu\((\d+)\): error: (.*(?:\n[ \t]+.*)*)", re.MULTILINE)
SIDE_OF_CALL = re.compile(r"calling a __(?:device|host)__ function\(.*\) from a __(?:host|device|global)__ ?(?:__device__ )?function")
NOT_OF_CUDA = re.compile(r"kevin_torch|\b(?:torch|at|c10)::|\b(?:TORCH|AT|C10|THC|CUDA_KERNEL)_|Accessor|Half|BFloat16")


def blanked(text):
    """Without comments and the contents of strings; each line keeps its number."""
    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', lambda match: re.sub(r"[^\n]", " ", match[0]), text,
                  flags=re.DOTALL)


def device_lines(text):
    """The numbers of the lines in bodies of __global__ and __device__ functions."""
    text = blanked(text)
    lines, line, depth, head, inside = set(), 1, 0, "", False
    for character in text:
        if character == "\n":
            line += 1
        elif character == "{":
            if depth == 0:
                if re.search(r"\bnamespace\b[^;(]*$|\bextern\s*$", head):
                    head = ""
                    continue
                inside = re.search(r"__global__|__device__", head) is not None and "__host__" not in head
            depth += 1
        elif character == "}":
            depth = max(0, depth - 1)
            if depth == 0:
                head, inside = "", False
        if depth == 0 and character not in "{}":
            head = "" if character == ";" else head + character
        if inside and depth > 0:
            lines.add(line)
    return lines


def is_of_device_code(error, text):
    """Whether an error stands in device code that uses nothing of torch, or is a call between host and device."""
    found = ERROR_IN_CUDA.match(error)
    if not found or NOT_OF_CUDA.search(found[2]):
        return False
    if SIDE_OF_CALL.match(found[2]):
        return True
    at = int(found[1])
    around = "\n".join(text.split("\n")[max(0, at - 2):at + 1])
    return at in device_lines(text) and not NOT_OF_CUDA.search(around)


# Words before a name that it is not declared by.
NO_TYPES = {"return", "else", "case", "throw", "new", "delete", "goto", "sizeof", "not", "and", "or", "do", "co_return",
            "co_yield", "co_await"}


def declares(text, name):
    """Whether the text may declare a name: somewhere it stands behind what can end a type, or in a structured binding."""
    text = blanked(text)
    before = re.findall(r"(\w+|[>*&])\s*\b" + name + r"\b", text)
    return bool(set(before) - NO_TYPES) or re.search(r"\bauto\b[\s&]*\[[^\]]*\b" + name + r"\b", text) is not None


def require_uncertain(logs, commands):
    """Raises DoesNotCompile where torch's own headers cannot help: a name is undeclared, or a header absent, that they do not
    bring either, or an error stands in device code. The first error of a text decides: later ones may follow from it, as the
    use of a function does whose own declaration needs a type of torch."""
    names, absent = set(), set()
    for log in logs:
        error = FIRST_ERROR.search(log)
        file = error and next((name for name in ("main.cpp", "cuda.cu") if error[0].startswith(name)), None)
        if not file:
            continue
        with open(os.path.join(commands.folder, file), encoding="utf-8", errors="replace") as source:
            text = source.read()
        absent.update(ABSENT.findall(error[0]))
        undeclared = {match[1] for pattern in UNDECLARED for match in pattern.finditer(error[0])}
        names.update(name for name in undeclared if not declares(text, name))
        if not undeclared and is_of_device_code(error[0], text):
            raise DoesNotCompile(as_of_torch("\n".join(logs)))
    if not names and not absent:
        return
    words, missing = words_of_torch(commands)
    if absent & missing or (not missing and names - words):
        raise DoesNotCompile(as_of_torch("\n".join(logs)))


def words_of_torch(commands):
    """(the words of all headers that the texts include, torch's own among them; headers that are absent, after which there
    are no words). Three seconds."""
    lines = []
    for file in ("cuda.cu", "main.cpp"):
        path = os.path.join(commands.folder, file)
        if os.path.exists(path):
            with open(path, encoding="utf-8", errors="replace") as text:
                lines += INCLUDE.findall(text.read())
    includes = [os.path.join(commands.torch, "include"), os.path.join(commands.torch, "include/torch/csrc/api/include"),
                sysconfig.get_path("include", scheme="posix_prefix")]
    if commands.with_cuda:
        includes += [os.path.join(cuda_folder(), "include"), os.path.join(cuda_folder(), "include/cccl")]
    command = [commands.cxx, "-std=c++17", "-E", "-dD", "-P", *(AS_NVCC if commands.with_cuda else []), "-x", "c++", "-"]
    for include in includes:
        command += ["-isystem", include]
    try:
        found = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, errors="replace",
                               timeout=PREPROCESSING_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        raise Unsuitable("torch's headers cannot be preprocessed") from None
    missing = {match[1] for match in ABSENT.finditer(found.stderr)}
    if found.returncode and not missing:
        raise Unsuitable("torch's headers cannot be preprocessed")
    return set(re.findall(r"\w+", found.stdout)), missing


def as_of_torch(text):
    """Messages name our classes as the author knows them."""
    return re.sub(r"\bkevin_torch::(bind::)?", "at::", text)


def own_undefined(error_text):
    """Of a library that cannot be loaded: the missing function, where it is the author's own."""
    match = re.search(r"undefined symbol: (\S+)", error_text)
    if not match or "kevin_torch" not in match[1]:
        return None
    try:
        shown = subprocess.run(["c++filt", match[1]], capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        shown = ""
    return as_of_torch(shown or match[1])
