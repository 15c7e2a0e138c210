"""A worker's work: loads a candidate or the reference, and makes batches of calls. The same caller times both sides, and an
empty module, whose cost is subtracted from both."""

import ast
import contextlib
import ctypes
import gc
import importlib.util
import io
import json
import logging
import os
import sys
import traceback

import torch

logging.disable(logging.WARNING)  # that there is no GPU
import torch.utils.cpp_extension  # noqa: candidates import it

logging.disable(logging.NOTSET)

import autotune
import extensions
import stage_timer
import torch_compile
import weights
from worker import ARENA, INPUTS, LOAD_FAILED, PAGE, RAISED, READY, REFUSED, WRONG_OUTPUT

RUN, PUBLISH, EMPTY, EXAMINE = 0, 1, 2, 3  # PageCommand
MOST_CALLS = 256
MESSAGE_CHARACTERS = 3500
FOLDER = "/tmp/candidate"


class Refused(Exception):
    """The candidate breaks a rule."""


class WrongOutput(Exception):
    """A call returned something else than the problem's outputs."""


def warm_up(threads):
    """Once, in the process that workers are forked from: what the first operators of a process would pay for. With one
    thread, because a process with several cannot enter the sandbox."""
    torch.set_num_threads(1)
    x = torch.ones(8, 8)
    torch.nn.functional.conv2d(torch.ones(1, 2, 8, 8), torch.ones(2, 2, 3, 3))
    torch.nn.Linear(8, 8)(x).softmax(-1).sum()
    torch.relu(x @ x)
    weights.warm_up(threads)
    try:
        import triton.language  # noqa: half a second that a candidate need not wait
    except ImportError:
        pass
    autotune.install()


def contents(descriptor):
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        return file.read()


class Log(io.RawIOBase):
    """Standard output and errors: a file of the evaluator whose size is fixed. What no longer fits is dropped."""

    def __init__(self, descriptor):
        self.descriptor = descriptor

    def writable(self):
        return True

    def fileno(self):
        return self.descriptor

    def write(self, text):
        with contextlib.suppress(OSError):
            os.write(self.descriptor, text)
        return len(text)


def print_to(log):
    """Errors are written at once, as Python does."""
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(Log(1)), errors="backslashreplace")
    sys.stderr = io.TextIOWrapper(Log(2), errors="backslashreplace", write_through=True)


def describe(error, path="candidate.py"):
    """One error for its author: the line of the candidate, the type and the text."""
    if isinstance(error, SyntaxError) and error.filename and error.filename.endswith(path):
        return f"line {error.lineno}: {type(error).__name__}: {error.msg}\n    {(error.text or '').strip()}"
    lines = [f"line {frame.lineno}" + (f" ({frame.name})" if frame.name != "<module>" else "")
             for frame in traceback.extract_tb(error.__traceback__) if frame.filename.endswith(path)]
    if isinstance(error, SystemExit):
        text = f"it ends the process: sys.exit({error.code})"
    else:
        text = f"{type(error).__name__}: {error}"
    if isinstance(error, PermissionError):
        text += refused_in(error, path)
    return ((lines[-1] + ": " if lines else "") + text)[:MESSAGE_CHARACTERS]


def refused_in(error, path):
    """Where libraries asked for what the sandbox refuses."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.endswith(path)]
    places = [f"{os.path.basename(frame.filename)}:{frame.lineno} {frame.name}" for frame in frames[-4:]]
    return f" (in {', '.join(places)})" if places else ""


class Tensors:
    """Inputs, weights and their slots: read-only memory of the evaluator as tensors."""

    def __init__(self, library, job, descriptor):
        arguments = job["arguments"]
        count = len(arguments)
        first, distance = (ctypes.c_void_p * count)(), (ctypes.c_uint64 * count)()
        offsets = (ctypes.c_uint64 * count)(*[place["offset"] for place in arguments])
        strides = (ctypes.c_uint64 * count)(*[place["stride"] for place in arguments])
        library.KevinMapInputs(descriptor, job["slots"], count, offsets, strides, first, distance)
        self.first, self.distance = first, distance
        self.slots = self.slots_of(job)

    def slots_of(self, job):
        """Of each slot the tensors of job["tensors"]."""
        slots = [[] for _ in range(job["slots"])]
        for tensor in job["tensors"]:
            at = tensor["argument"]
            for slot, tensors in enumerate(slots):
                tensors.append(self.view(self.first[at] + slot * self.distance[at] + tensor["offset"], tensor))
        return slots

    @staticmethod
    def view(address, tensor):
        dtype, elements = getattr(torch, tensor["dtype"]), 1
        for dim in tensor["shape"]:
            elements *= dim
        memory = (ctypes.c_char * (elements * dtype.itemsize)).from_address(address)
        return torch.frombuffer(memory, dtype=dtype).reshape(tensor["shape"])


def arguments_of(job, slot):
    """What `forward` is called with: the inputs in the problem's order, or, of a candidate, as KernelBench's Model takes
    them (job["forward"]: names of inputs and literals)."""
    inputs = {spec["name"]: tensor for tensor, spec in zip(slot, job["tensors"]) if not spec["param"]}
    if job["forward"] is None:
        return tuple(inputs.values())
    return tuple(inputs[text] if text in inputs else ast.literal_eval(text) for text in job["forward"])


def register_weights(module, job):
    """The problem's weights as parameters, in its order."""
    for tensor in job["tensors"]:
        if tensor["param"]:
            module.register_parameter(tensor["name"], torch.nn.Parameter(
                torch.zeros(tensor["shape"], dtype=getattr(torch, tensor["dtype"])), requires_grad=False))


class ReferenceModule(torch.nn.Module):
    """The reference as a module. Its weights are parameters, so that a call costs what it costs a candidate: `forward` is
    the reference's own function where there are none."""

    def __init__(self, job):
        super().__init__()
        function, as_dict = torch_compile.load_reference(
            torch, job["problem"], job["reference"], set(job["operators"]), direct=True)
        register_weights(self, job)
        weights = dict(self._parameters) if as_dict else tuple(self._parameters.values())
        if as_dict:
            self.forward = lambda *inputs: function(*inputs, weights)
        elif weights:
            self.forward = lambda *inputs: function(*inputs, *weights)
        else:
            self.forward = function


class LaunchModule(torch.nn.Module):
    """A candidate of kind `triton`: launch(inputs, weights, outputs), in the problem's order."""

    def __init__(self, job, launch):
        super().__init__()
        if not callable(launch):
            raise NameError("there is no function launch(" + ", ".join(
                [tensor["name"] for tensor in job["tensors"]] + ["out"] * len(job["outputs"])) + ")")
        self.launch, self.device = launch, job.get("device", "cpu")
        self.outputs = [(output["shape"], getattr(torch, output["dtype"])) for output in job["outputs"]]
        register_weights(self, job)

    def forward(self, *inputs):
        outs = [torch.empty(shape, dtype=dtype, device=self.device) for shape, dtype in self.outputs]
        self.launch(*inputs, *self._parameters.values(), *outs)
        return outs[0] if len(outs) == 1 else tuple(outs)


class EmptyModule(torch.nn.Module):
    """Computes nothing: what a call costs on the way to a module and back. It takes as many weights as the others. `made`: its
    outputs; None: zeros."""

    def __init__(self, job, made=None):
        super().__init__()
        register_weights(self, job)
        made = tuple(made or (torch.zeros(output["shape"], dtype=getattr(torch, output["dtype"])) for output in job["outputs"]))
        self.made = made if len(made) > 1 else made[0]

    def forward(self, *inputs):
        return self.made


class Calls:
    """One module with the arguments and weights of every slot. Hot code: it is part of what is timed."""

    device = "cpu"  # of inputs and outputs

    def __init__(self, library, page, job, slots, module, holders):
        self.library, self.page, self.module = library, page, module
        self.expected = [(tuple(output["shape"]), getattr(torch, output["dtype"])) for output in job["outputs"]]
        self.inputs = [arguments_of(job, slot) for slot in slots]
        drawn = [[t for t, spec in zip(slot, job["tensors"]) if spec["param"]] for slot in slots]
        self.weights = [[(holder, weight) for holder, weight in zip(holders, slot) if holder is not None]
                        for slot in drawn]
        self.outputs = []

    def run(self, slots):
        outputs = self.outputs
        outputs.clear()
        page, module, weights_of, inputs_of = self.page, self.module, self.weights, self.inputs
        return_one, due = self.library.KevinReturnOne, len(self.expected)
        many = due > 1
        for call, slot in enumerate(slots):
            for holder, weight in weights_of[slot]:
                holder.data = weight
            out = module(*inputs_of[slot])
            outputs.append(out)
            if many:
                if not isinstance(out, (tuple, list)) or len(out) != due:
                    self.check(out)  # the page has room for so many
                self.return_many(call, out)
            elif out.is_contiguous():
                return_one(page, call, out.data_ptr())
            else:
                self.return_many(call, (out,))

    def return_many(self, call, outs):
        for index, out in enumerate(outs):
            self.library.KevinPublish(self.page, call, index, out.data_ptr())
            if not out.is_contiguous():
                strides = (ctypes.c_int64 * out.dim())(*out.stride())
                self.library.KevinPublishStrides(self.page, call, index, strides, out.dim())
        self.library.KevinReturned(self.page, call + 1)

    def publish(self):
        """Of the reference, between batches: contiguous outputs."""
        for call, out in enumerate(self.outputs):
            outs = out if isinstance(out, (tuple, list)) else (out,)
            self.outputs[call] = tuple(each.contiguous() for each in outs)
            self.return_many(call, self.outputs[call])

    def check(self, returned=None):
        """Raises WrongOutput or Refused for what is not the problem's outputs. A courtesy: the evaluator reads the memory
        that was named, as the type that the problem names."""
        for out in self.outputs if returned is None else [returned]:
            if len(self.expected) == 1:
                if not isinstance(out, torch.Tensor):
                    raise WrongOutput(f"forward returned a {type(out).__name__} where a tensor is due")
                outs = (out,)
            else:
                if not isinstance(out, (tuple, list)) or len(out) != len(self.expected):
                    raise WrongOutput(f"forward returned a {type(out).__name__} where {len(self.expected)} tensors are due")
                outs = out
            for each, (shape, dtype) in zip(outs, self.expected):
                self.check_one(each, shape, dtype)

    def check_one(self, out, shape, dtype):
        if not isinstance(out, torch.Tensor):
            raise WrongOutput(f"forward returned a {type(out).__name__} where a tensor is due")
        if type(out) not in (torch.Tensor, torch.nn.Parameter):
            raise Refused(f"an output is a {type(out).__name__}, a subclass of Tensor: only plain tensors count as computed")
        if out.device.type != self.device:
            raise WrongOutput(f"an output is on device {out.device}, expected {self.device}")
        if out.layout != torch.strided:
            raise WrongOutput(f"an output has layout {out.layout}, expected torch.strided")
        if out.dtype != dtype:
            raise WrongOutput(f"an output has dtype {out.dtype}, expected {dtype}")
        if tuple(out.shape) != shape:
            raise WrongOutput(f"an output has shape {tuple(out.shape)}, expected {shape}")


class Worker:
    def __init__(self, library, job, descriptors):
        self.library, self.job = library, job
        self.page = library.KevinMapPage(descriptors[PAGE])
        library.KevinUseArena(descriptors[ARENA], job["arena_bytes"])
        self.tensors = Tensors(library, job, descriptors[INPUTS])
        self.slots = (ctypes.c_uint16 * MOST_CALLS)()
        self.empty = None

    def state(self, state, message=""):
        self.library.KevinState(self.page, state, message.encode(errors="replace")[:MESSAGE_CHARACTERS])

    def run(self, bundle):
        torch.cuda._is_in_bad_fork = lambda: False  # else a call of .cuda() blames the fork, not the missing GPU
        torch.set_num_threads(self.job["threads"])
        torch.manual_seed(self.job["seed"])
        with torch.no_grad():
            try:
                self.calls = self.load(bundle)
            except (Refused, weights.Unmatched) as error:
                self.state(REFUSED, str(error))
                os._exit(1)
            except BaseException as error:
                self.state(LOAD_FAILED, describe(error))
                os._exit(1)
            gc.collect()
            gc.freeze()
            gc.disable()
            self.state(READY)
            self.serve()

    def load(self, bundle):
        if self.job["role"] == "reference":
            module, empty = ReferenceModule(self.job), EmptyModule(self.job)
            slots = self.tensors.slots
            self.empty = Calls(self.library, self.page, self.job, slots, empty, list(empty._parameters.values()))
            return Calls(self.library, self.page, self.job, slots, module, list(module._parameters.values()))
        job, module, holders = load_candidate(self.job, bundle)
        return Calls(self.library, self.page, job, self.tensors.slots_of(job), module, holders)

    def serve(self):
        library, page, seen = self.library, self.page, 0
        while True:
            seen = library.KevinWaitGo(page, seen)
            command = library.KevinCommand(page)
            calls = self.empty if command == EMPTY else self.calls
            try:
                if command == PUBLISH:
                    calls.publish()
                else:
                    count = library.KevinCalls(page, self.slots)
                    if command == EXAMINE:
                        self.examine(self.slots[:count])
                    else:
                        calls.run(self.slots[:count])
                        calls.check()
            except Refused as error:
                self.state(REFUSED, str(error))
            except WrongOutput as error:
                self.state(WRONG_OUTPUT, str(error))
            except BaseException as error:
                self.explain(calls, error)
            library.KevinDone(page, seen)

    def explain(self, calls, error):
        """An output of another type fails in the caller's own lines first."""
        try:
            if calls.outputs:
                calls.check(calls.outputs[-1])
        except WrongOutput as other:
            return self.state(WRONG_OUTPUT, str(other))
        except Refused as other:
            return self.state(REFUSED, str(other))
        except BaseException:
            pass
        return self.state(RAISED, describe(error))


def unpack(bundle, folder=FOLDER):
    """Writes the source and its compiled extensions to the folder. A bundle is a line of JSON and the files behind it."""
    os.makedirs(folder, exist_ok=True)
    header, _, content = bundle.partition(b"\n")
    described = json.loads(header)
    for file in described["files"]:
        with open(os.path.join(folder, file["name"]), "wb") as out:
            out.write(content[:file["bytes"]])
        content = content[file["bytes"]:]
    return described


def import_candidate(path, constants=None, code=None):
    """`code`: the compiled text; None: that of the file."""
    spec = importlib.util.spec_from_file_location("candidate", path)
    module = importlib.util.module_from_spec(spec)
    module.__dict__.update(constants or {})
    sys.modules["candidate"] = module
    if code is None:
        spec.loader.exec_module(module)
    else:
        exec(code, module.__dict__)
    return module


def import_with_timer(path, constants, names, timer):
    """The candidate with calls of the timer where its text marks stages with these names."""
    with open(path, "rb") as file:
        text = importlib.util.decode_source(file.read())
    constants = {**(constants or {}), stage_timer.TIMER: timer.mark}
    return import_candidate(path, constants, stage_timer.marked_code(text, path, names))


def as_launched(job):
    """The job as `launch` sees it: all inputs in the problem's order, and parameters in one block where they are many."""
    tensors = job["tensors"]
    if job.get("block") is not None:
        first = next(tensor for tensor in tensors if tensor["param"])
        block = {**first, "name": job["block"]["name"], "shape": [job["block"]["elements"]], "offset": 0}
        tensors = [tensor for tensor in tensors if not tensor["param"]] + [block]
    return {**job, "tensors": tensors, "forward": None}


def load_candidate(job, bundle, **timing):
    """(the job as the candidate takes it, what is called, holders of the weights). `timing`: of the Timer of a diagnosis."""
    described = unpack(bundle)
    extensions.use_compiled(FOLDER, described.get("extensions", {}))
    path = os.path.join(FOLDER, "candidate.py")
    is_launched = described.get("kind") == "triton"
    constants = job.get("symbols") if is_launched else None
    names = described.get("stages")  # for a diagnosis
    timer = stage_timer.Timer(**timing) if names else None
    module = import_with_timer(path, constants, names, timer) if names else import_candidate(path, constants)
    if is_launched:
        job, launch = as_launched(job), getattr(module, "launch", None)
        called = LaunchModule(job, timer.around(launch) if names and callable(launch) else launch)
        return job, called, list(called._parameters.values())
    model = getattr(module, "ModelNew", None)
    if not isinstance(model, type) or not issubclass(model, torch.nn.Module):
        raise NameError("there is no class ModelNew(nn.Module)")
    if names:
        model.forward = timer.around(model.forward)
    return job, *weights.build(model, job)
