"""The reasons why a file cannot be imported, as messages."""

import linecache
import os
import random
import re
import sys
import traceback

import torch

NOT_THEIRS = (os.path.dirname(os.path.abspath(__file__)), os.path.dirname(torch.__file__), "<")
NO_CUDA = ("not compiled with CUDA", "NVIDIA driver", "No CUDA", "CUDA driver", "libcuda", "CUDA-capable", "HIP GPUs")
TRACEBACK_LINES = 6
SANDBOXED = False  # whether files and the network are out of reach
OUT_OF_REACH = "the file runs in a sandbox, without network and your home: --allow-read PATH shows it a file or folder, " \
    "--trust runs it as you do"


class Refusal(Exception):
    """This file cannot be imported: the reason and the next step."""

    def __init__(self, what, next_step=""):
        super().__init__(what)
        self.next_step = next_step


class Unwritable(Exception):
    """A part of the graph has no TorchScript text; names it."""


class ChangesState(Exception):
    """The forward writes into an input or into the module's state; names it."""


def place_text(file, line, code):
    return f" ({os.path.basename(file)}, line {line}: {code})"


def place_in(error, folder):
    """The place of an error in the user's files: " (file.py, line 7: if x.sum() > 0:)"."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(folder)]
    return place_text(own[-1].filename, own[-1].lineno, own[-1].line) if own else ""


def place_of(node, folder):
    """The same for a call in a graph."""
    own = re.findall(r'File "([^"]*)", line (\d+), in .*\n *(.*)', node.meta.get("stack_trace") or "")
    own = [found for found in own if found[0].startswith(folder)]
    return place_text(*own[-1]) if own else ""


def place_of_chance(call, folder):
    """The same of the first random number that `call()` draws from the generators that Python and numpy share."""
    known, place, places = None, None, []

    def state():
        numpy = sys.modules.get("numpy")
        keys, position = numpy.random.get_state()[1:3] if numpy else (None, 0)
        return random.getstate(), position, keys is not None and keys.tobytes()

    def look(frame, event, _):
        nonlocal known, place
        if not frame.f_code.co_filename.startswith(folder):
            return None
        before, known = known, state()
        if place and known != before:
            places.append(place)
        at = frame.f_back if event == "return" and frame.f_back else frame
        place = (at.f_code.co_filename, at.f_lineno) if at.f_code.co_filename.startswith(folder) else None
        return look

    sys.settrace(look)
    try:
        call()
    finally:
        sys.settrace(None)
    return place_text(*places[0], linecache.getline(*places[0]).strip()) if places else ""


def first_line(error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:400]


def is_out_of_reach(error):
    """Whether an error of the user's code may be due to the sandbox: of files, of the network, or raised for one."""
    while SANDBOXED and error is not None:
        if isinstance(error, OSError):
            return True
        error = error.__cause__ or error.__context__
    return False


def refuse_raised(doing, error):
    if any(word in str(error) for word in NO_CUDA):
        raise Refusal(f"{doing} needs CUDA: {first_line(error)}",
                      "make it run on the CPU too (device=x.device instead of \"cuda\"); Kevin moves it by itself")
    if isinstance(error, ModuleNotFoundError) and error.name:
        raise Refusal(f"{doing} imports `{error.name}`, which this Python does not have",
                      f"install it for {sys.executable}, or name the Python that has it in KEVIN_PYTHON" +
                      ("; if it lies in a folder of yours: --allow-read, or --trust" if SANDBOXED else "")) from error
    told = traceback.TracebackException.from_exception(error)
    own = [frame for frame in told.stack if not frame.filename.startswith(NOT_THEIRS)]
    told.stack = traceback.StackSummary.from_list(own or told.stack)
    lines = "".join(told.format(chain=False)).rstrip().splitlines()[-TRACEBACK_LINES:]
    raise Refusal(f"{doing} raises\n    " + "\n    ".join(lines),
                  OUT_OF_REACH if is_out_of_reach(error) else "correct the file; python3 shows the same") from error
