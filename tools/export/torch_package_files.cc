#include <fmt/format.h>

#include <sstream>

#include "agent/machine.h"
#include "env/error.h"
#include "env/process/files.h"
#include "tools/export/quote.h"
#include "tools/export/torch_package.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

using FileTexts = std::map<std::string, std::string>;  // by path within the output

// Modules of Python and torch that a file of the same name would hide from those that import them.
constexpr const char* kTakenModules =
    "abc aifc antigravity argparse array ast asynchat asyncio asyncore atexit audioop base64 bdb "
    "binascii bisect builtins bz2 cProfile calendar cgi cgitb chunk cmath cmd code codecs codeop "
    "collections colorsys compileall concurrent configparser contextlib contextvars copy copyreg "
    "crypt csv ctypes curses dataclasses datetime dbm decimal difflib dis distutils doctest email "
    "encodings ensurepip enum errno faulthandler fcntl filecmp fileinput fnmatch fractions ftplib "
    "functools gc genericpath getopt getpass gettext glob graphlib grp gzip hashlib heapq hmac html "
    "http idlelib imaplib imghdr imp importlib inspect io ipaddress itertools json keyword lib2to3 "
    "linecache locale logging lzma mailbox mailcap marshal math mimetypes mmap modulefinder msilib "
    "msvcrt multiprocessing netrc nis nntplib nt ntpath nturl2path numbers opcode operator optparse "
    "os ossaudiodev pathlib pdb pickle pickletools pipes pkgutil platform plistlib poplib posix "
    "posixpath pprint profile pstats pty pwd py_compile pyclbr pydoc pydoc_data pyexpat queue quopri "
    "random re readline reprlib resource rlcompleter runpy sched secrets select selectors shelve "
    "shlex shutil signal site smtpd smtplib sndhdr socket socketserver spwd sqlite3 sre_compile "
    "sre_constants sre_parse ssl stat statistics string stringprep struct subprocess sunau symtable "
    "sys sysconfig syslog tabnanny tarfile telnetlib tempfile termios textwrap this threading time "
    "timeit tkinter token tokenize tomllib trace traceback tracemalloc tty turtle turtledemo types "
    "typing unicodedata unittest urllib uu uuid venv warnings wave weakref webbrowser winreg winsound "
    "wsgiref xdrlib xml xmlrpc zipapp zipfile zipimport zlib zoneinfo torch numpy triton ninja "
    "setuptools sympy einops ";

constexpr const char* kKeywords =
    "False None True and as assert async await break class continue def del elif else except finally for "
    "from global if import in is lambda nonlocal not or pass raise return try while with yield";

bool IsWordOf(const char* list, const std::string& name) {
  std::istringstream names(list);
  for (std::string one; names >> one;) {
    if (one == name) return true;
  }
  return false;
}

bool IsPythonName(const std::string& name) {
  return !name.empty() && name == Identifier("", name) && (name[0] < '0' || name[0] > '9') &&
         !IsWordOf(kKeywords, name);
}

std::string SetupText(const TorchPackage& package, bool gpu) {
  std::string kernels;
  for (const auto& [name, text] : package.kernel_files) {
    if (name.starts_with("kernel")) kernels += PythonString(name) + ", ";
  }
  return fmt::format(R"("""Builds the operator and its kernels ahead: pip install --no-build-isolation ."""
import os

import torch
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, {1}

NAME, SPACE = {0}, {2}
CPU = {{"cxx": ["-std=c++20", "-O3", "-march=native", "-fopenmp", "-w"]}}
GPU = {{"cxx": ["-O2", "-std=c++20"],
       "nvcc": ["-O3", "-std=c++20", "--expt-relaxed-constexpr", "-w", "-U__CUDA_NO_HALF_OPERATORS__",
                "-U__CUDA_NO_HALF_CONVERSIONS__", "-U__CUDA_NO_HALF2_OPERATORS__",
                "-U__CUDA_NO_BFLOAT16_CONVERSIONS__"]}}

if {3} and "TORCH_CUDA_ARCH_LIST" not in os.environ and torch.cuda.is_available():
    major, minor = torch.cuda.get_device_capability()
    os.environ["TORCH_CUDA_ARCH_LIST"] = f"{{major}}.{{minor}}a" if major >= 9 else f"{{major}}.{{minor}}"


def extension(stem, source, arguments):
    return {1}(f"{{NAME}}.{{SPACE}}_{{stem}}", [f"{{NAME}}/{{NAME}}_kernel/{{source}}"], extra_compile_args=arguments{4})


setup(
    name=NAME.replace("_", "-"),
    version="1.0",
    packages=[NAME],
    package_data={{NAME: [f"{{NAME}}_kernel/*"]}},
    ext_modules=[extension("operator", "operator.cpp", {{"cxx": ["-O2", "-std=c++20"]}})]
    + [extension(file.rpartition(".")[0], file, {5}) for file in [{6}]],
    cmdclass={{"build_ext": BuildExtension}},
)
)",
                     PythonString(package.name), gpu ? "CUDAExtension" : "CppExtension",
                     PythonString(package.space), gpu ? "True" : "False",
                     gpu ? "" : ", extra_link_args=[\"-fopenmp\", \"-Wl,-Bsymbolic\"]", gpu ? "GPU" : "CPU",
                     kernels);
}

std::string ReadmeText(const TorchPackage& package) {
  return fmt::format(R"(# {0}

A kernel as a PyTorch operator. Shapes, dtypes and device are in `{0}/__init__.py`.

    pip install ninja setuptools wheel
    pip install --no-build-isolation .    # against the PyTorch that is installed; or put the folder {0} on the path: it
                                          # is then built at the first import, once, in torch's extension cache

    import {0}
    out = {0}.run(*{0}.example_inputs())
)",
                     package.name);
}

FileTexts FolderOf(const TorchPackage& package, bool gpu) {
  FileTexts files;
  for (const auto& [name, text] : package.kernel_files)
    files[package.name + "/" + package.name + "_kernel/" + name] = text;
  files[package.name + "/__init__.py"] = package.python;
  files["setup.py"] = SetupText(package, gpu);
  files["README.md"] = ReadmeText(package);
  files["pyproject.toml"] =
      "[build-system]\nrequires = [\"setuptools\", \"wheel\", \"ninja\", \"torch\"]\nbuild-backend = "
      "\"setuptools.build_meta\"\n";
  return files;
}

bool Exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

bool IsOneFile(const fs::path& output) { return output.extension() == ".py"; }

fs::path KernelFolder(const fs::path& output) {
  return output.parent_path() / (output.stem().string() + "_kernel");
}

[[noreturn]] void Fail(const fs::path& path, const std::error_code& error) {
  const bool full = error == std::errc::no_space_on_device;
  throw Error(full ? ExitCode::kBroken : ExitCode::kBadRequest,
              fmt::format("{}: cannot be written: {}", path.string(), error.message()),
              "give another name with -o");
}

// A folder with these files, complete or not at all.
void WriteFolder(const fs::path& folder, const FileTexts& files, bool force) {
  const fs::path parent = folder.has_parent_path() ? folder.parent_path() : fs::path(".");
  const WorkFolder work(parent, ".kevin-export-");
  const fs::path made = work.path() / "new", old = work.path() / "old";
  std::error_code error;
  for (const auto& [name, text] : files) {
    fs::create_directories((made / name).parent_path(), error);
    if (error) Fail(folder, error);
    WriteFile((made / name).string(), text, false);
  }
  if (Exists(folder)) {
    if (!force) RequireFreeOutput(folder, false);
    fs::rename(folder, old, error);
    if (error) Fail(folder, error);
  }
  fs::rename(made, folder, error);
  if (!error) return;
  std::error_code ignored;
  if (Exists(old)) fs::rename(old, folder, ignored);
  Fail(folder, error);
}

}  // namespace

void RequireFreeOutput(const fs::path& output, bool force) {
  if (IsOneFile(output) && !IsPythonName(output.stem().string())) {
    throw Error(
        ExitCode::kBadRequest,
        fmt::format("-o {}: Python cannot import a file of this name", output.string()),
        "use letters, digits and _ before .py, no digit in front and no word of Python such as `class`");
  }
  if (const std::string module = output.stem().string(); IsWordOf(kTakenModules, module)) {
    throw Error(
        ExitCode::kBadRequest,
        fmt::format("-o {}: Python has a module `{}`, which this name would hide", output.string(), module),
        "choose another name, such as " + module + "_fast" + output.extension().string());
  }
  std::vector<fs::path> taken = {output};
  if (IsOneFile(output)) taken.push_back(KernelFolder(output));
  for (const fs::path& path : taken) {
    std::error_code error;
    const bool fits = fs::is_directory(path, error) == (path != output || !IsOneFile(output));
    if (Exists(path) && force && !fits)
      throw Error(ExitCode::kBadRequest, path.string() + ": it is of another kind and was left as it is",
                  "give another name with -o");
    if (!Exists(path) || force) continue;
    throw Error(ExitCode::kBadRequest, path.string() + ": it exists and was left as it is",
                "give another name with -o, or --force to replace it");
  }
}

std::string WritePackageFiles(const TorchPackage& package, const fs::path& output, bool gpu, bool force) {
  RequireFreeOutput(output, force);
  const char* const built = "built with torch.utils.cpp_extension at the first import";
  if (!IsOneFile(output)) {
    WriteFolder(output, FolderOf(package, gpu), force);
    return fmt::format(
        "written to {0}\nbuild it: pip install --no-build-isolation {1}\nthen: import {2} (or put {1} on the path: {3})\n",
        output.string(), ShellWord(output.string()), package.name, built);
  }
  FileTexts kernel(package.kernel_files.begin(), package.kernel_files.end());
  const fs::path folder = KernelFolder(output);
  const bool folder_was_there = Exists(folder);
  WriteFolder(folder, kernel, force);
  try {
    WriteFile(output.string(), package.python, force);
  } catch (const Error&) {
    std::error_code ignored;
    if (!folder_was_there) fs::remove_all(folder, ignored);
    throw;
  }
  return fmt::format("written to {} and {}\nthen: import {} ({})\n", output.string(), folder.string(),
                     package.name, built);
}

}  // namespace kevin
