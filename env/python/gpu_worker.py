"""Workers on a GPU. A worker makes its context before its candidate comes, after its first message. Then it holds no memory
of the device but that context. The second message has the job, as on a CPU, and the pool.

Memory is the evaluator's. The pool is one allocation that this process and the evaluator map: all tensors that torch makes
for the job lie in it (pool_allocator.h), so that the evaluator reads outputs where they are. Inputs and weights are another
one, mapped read-only, as tensors for each slot. A batch ends when all streams of the context are idle.

A candidate whose calls may compile, or tune themselves, makes its first calls in a worker of the role "examine", before others
are timed (gpu_first_calls.py). It alone may run compilers. Of other candidates a timed worker tells which kernels a call has.
"""

import contextlib
import ctypes
import functools
import json
import os
import socket
import sys

import torch

import gpu_first_calls


def warm_up():
    """Once, in the process that workers are forked from, which may not touch the driver: a forked process could not use it
    then. Returns the threads of the CPU."""
    is_available = torch.cuda.is_available
    torch.cuda.is_available = lambda: False  # cpp_extension asks when it is imported
    try:
        import caller  # noqa: imports all that a worker needs
        with contextlib.suppress(ImportError):
            remember_programs()
    finally:
        torch.cuda.is_available = is_available
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{descriptor}").startswith("/dev/nvidia"):
                raise SystemExit("worker: importing torch opened the GPU")
    return 1


def remember_programs():
    """What Triton asks other programs for, which a timed worker cannot start: it remembers each answer. Two of them are
    parts of its caches' keys."""
    from triton.backends.nvidia import compiler, driver
    from triton.runtime import build
    asked = [build.platform_key, driver.library_dirs]
    for capability in os.environ.get("KEVIN_GPU_CAPABILITY", "").split():
        asked.append(functools.partial(compiler.get_ptxas_version, int(capability)))
    for ask in asked:
        try:
            ask()
        except Exception as error:
            print(f"worker: Triton: {type(error).__name__}: {error}", file=sys.stderr, flush=True)


class Library:
    """The functions of kevin-python-worker.so for a GPU."""

    def __init__(self, path):
        self.path = path
        quick, slow = ctypes.PyDLL(path), ctypes.CDLL(path)
        u64, number, text = ctypes.c_uint64, ctypes.c_int, ctypes.c_char_p
        self.callback = ctypes.CFUNCTYPE(None)
        for name, result, arguments in [
                ("KevinEnterGpuSandbox", None, [number, ctypes.POINTER(text), number, ctypes.c_int64, ctypes.c_int64, number,
                                                self.callback]),
                ("KevinGpuOpen", number, [number, text, number]),
                ("KevinGpuEndWarmUp", u64, []),
                ("KevinGpuTakePool", u64, [number, number, u64, text, number]),
                ("KevinGpuMapInputs", u64, [number, number, u64, text, number]),
                ("KevinGpuRelease", None, []),
                ("KevinGpuPlaceNext", None, [u64]),
                ("KevinGpuStatistics", None, [ctypes.POINTER(u64)]),
                ("KevinGpuResetPeaks", None, []),
                ("KevinGpuRecord", number, [text, number]),
                ("KevinGpuTakeActivities", text, [text, number]),
                ("KevinGpuEndRecorder", number, [text, number]),
                ("KevinGpuSynchronize", number, [])]:
            function = getattr(slow if name in ("KevinGpuSynchronize", "KevinGpuRelease") else quick, name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)


class Device:
    """The context, and torch's allocator in the pool."""

    def __init__(self, path, gpu):
        self.library, self.number = Library(path), gpu["device"]
        self.name = "cuda" if self.number >= 0 else "cpu"
        self.error = ctypes.create_string_buffer(2000)
        self.failure = None
        self.pool = 0  # its address

    def open(self, may_compile, processor):
        """In the new root folder, before the sandbox is complete. A worker that is timed has one processor, once it is warm."""
        try:
            self.require(self.library.KevinGpuOpen(self.number, self.error, len(self.error)))
            if self.name == "cuda":
                self.install()
            self.warm_up(self.name)
            if self.name == "cuda":
                self.activities_of(lambda: torch.ones(64, device="cuda"))  # CUPTI opens what the sandbox refuses
                if not may_compile:
                    self.end_recorder()
                torch._C._cuda_clearCublasWorkspaces()  # each use asks for one again
            self.library.KevinGpuEndWarmUp()
            if processor >= 0:
                os.sched_setaffinity(0, {processor})
        except BaseException as error:
            self.failure = f"{type(error).__name__}: {error}"

    def install(self):
        allocator = torch.cuda.memory.CUDAPluggableAllocator(self.library.path, "KevinGpuAllocate", "KevinGpuFree")
        functions = ctypes.CDLL(self.library.path)
        for setter, name in (("set_record_stream_fn", "KevinGpuRecordStream"), ("set_reset_fn", "KevinGpuRelease")):
            getattr(allocator.allocator(), setter)(ctypes.cast(getattr(functions, name), ctypes.c_void_p).value)
        torch.cuda.memory.change_current_allocator(allocator)
        torch.cuda.init()
        torch.cuda.set_device(self.number)
        count_as_torch(self.library)
        leave_cudnn_to_its_heuristics()

    def require(self, done):
        if not done:
            raise RuntimeError(self.error.value.decode(errors="replace"))
        return done

    @staticmethod
    def warm_up(name):
        """What the first operators of a context pay for."""
        x = torch.ones(64, 64, device=name)
        torch.relu(x @ x).sum().item()
        (x.half() @ x.half()).softmax(-1)
        if name == "cuda":
            torch.cuda.synchronize()

    def activities_of(self, work):
        """(begin and end in nanoseconds, name) of each kernel, copy and fill of memory on the device."""
        self.require(self.library.KevinGpuRecord(self.error, len(self.error)))
        try:
            work()
            self.synchronize()
        finally:
            lines = self.library.KevinGpuTakeActivities(self.error, len(self.error))
        self.require(lines is not None)
        split = (line.split(" ", 2) for line in lines.decode(errors="replace").splitlines())
        return [(int(begin), int(end), name) for begin, end, name in split]

    def end_recorder(self):
        """Before anything is timed."""
        if self.name == "cuda":
            self.require(self.library.KevinGpuEndRecorder(self.error, len(self.error)))

    def take_pool(self, descriptor, number_of_bytes):
        self.pool = self.require(
            self.library.KevinGpuTakePool(self.number, descriptor, number_of_bytes, self.error, len(self.error)))

    def map_inputs(self, descriptor, number_of_bytes):
        return self.require(
            self.library.KevinGpuMapInputs(self.number, descriptor, number_of_bytes, self.error, len(self.error)))

    def view(self, address, tensor):
        """A tensor at an address, of memory that torch's allocator has not handed out."""
        self.library.KevinGpuPlaceNext(address)
        try:
            return torch.empty(tensor["shape"], dtype=getattr(torch, tensor["dtype"]), device=self.name)
        finally:
            self.library.KevinGpuPlaceNext(0)

    def synchronize(self):
        """All streams of the context, whoever made them."""
        if self.library.KevinGpuSynchronize() != 0:
            torch.cuda.synchronize()  # raises the error with its text


def leave_cudnn_to_its_heuristics():
    """The search of `torch.backends.cudnn.benchmark` asks the allocator for its largest free block, which a
    CUDAPluggableAllocator refuses to tell: a candidate that sets it would crash. It stays off, whatever is set."""
    torch._C._set_cudnn_benchmark(False)
    torch._C._set_cudnn_benchmark = lambda on: None
    type(torch.backends.cudnn).__dict__["benchmark"].setter = torch._C._set_cudnn_benchmark


def count_as_torch(library):
    """torch's own counters belong to its own allocator."""
    numbers = (ctypes.c_uint64 * 10)()

    def statistics():
        library.KevinGpuStatistics(numbers)
        return list(numbers)

    def memory_stats(device=None):
        allocated, most, reserved, most_reserved, blocks, made, freed, joins, failures, _ = statistics()
        stats = {"num_alloc_retries": joins, "num_ooms": failures, "active.all.current": blocks}
        for name, now, peak in (("allocated_bytes", allocated, most), ("reserved_bytes", reserved, most_reserved),
                                ("active_bytes", allocated, most), ("requested_bytes", allocated, most)):
            stats.update({f"{name}.all.current": now, f"{name}.all.peak": peak})
        stats.update({"allocation.all.current": blocks, "allocation.all.allocated": made, "allocation.all.freed": freed})
        return stats

    def reset(device=None):
        library.KevinGpuResetPeaks()

    replaced = {
        "memory_stats": memory_stats, "memory_stats_as_nested_dict": memory_stats,
        "memory_allocated": lambda device=None: statistics()[0],
        "max_memory_allocated": lambda device=None: statistics()[1],
        "memory_reserved": lambda device=None: statistics()[2],
        "max_memory_reserved": lambda device=None: statistics()[3],
        "memory_cached": lambda device=None: statistics()[2],
        "max_memory_cached": lambda device=None: statistics()[3],
        "reset_peak_memory_stats": reset, "reset_max_memory_allocated": reset, "reset_max_memory_cached": reset,
        "reset_accumulated_memory_stats": reset,
        "memory_summary": lambda device=None, abbreviated=False: "\n".join(
            f"{name}: {value}" for name, value in memory_stats().items()),
        "mem_get_info": lambda device=None: (lambda s: (s[9] - s[0], s[9]))(statistics()),
    }
    for name, function in replaced.items():
        for module in (torch.cuda, torch.cuda.memory):
            if hasattr(module, name):
                setattr(module, name, function)


class Slots:
    """Inputs and weights of every slot as tensors."""

    def __init__(self, device, job, descriptor):
        self.device, self.base = device, device.map_inputs(descriptor, job["inputs_bytes"])
        self.slots = self.slots_of(job)

    def slots_of(self, job):
        """Of each slot the tensors of job["tensors"]."""
        slots = [[] for _ in range(job["slots"])]
        for tensor in job["tensors"]:
            place = job["arguments"][tensor["argument"]]
            for slot, tensors in enumerate(slots):
                address = self.base + place["offset"] + slot * place["stride"] + tensor["offset"]
                tensors.append(self.device.view(address, tensor))
        return slots


def run(server, own, first, descriptors):
    """A worker from its first message to its end."""
    import caller
    from worker import ARENA, BUNDLE, INPUTS, JOB, LOG, PAGE, receive
    POOL = PAGE  # of the second message: the page came with the first
    caller.print_to(descriptors[LOG])
    device = Device(sys.argv[1], first["gpu"])
    page = server.library.KevinMapPage(descriptors[PAGE])
    opened = device.library.callback(
        functools.partial(device.open, first["gpu"]["may_compile"] != 0, first["gpu"]["processor"]))
    folders = (ctypes.c_char_p * len(server.folders))(*[folder.encode() for folder in server.folders])
    device.library.KevinEnterGpuSandbox(server.namespaces, folders, len(server.folders), first["max_file_bytes"],
                                        first["cpu_limit_s"], first["gpu"]["may_compile"], opened)
    os.chdir("/tmp")  # a folder that can be written to, as the build's is
    for descriptor in descriptors[:JOB]:
        os.close(descriptor)
    server.socket.close()
    if device.failure:
        print(device.failure, flush=True)
        os._exit(3)
    own.send(b"w")  # warm
    byte, descriptors = receive(own, 1, 6)
    if not byte:
        os._exit(0)  # a spare that was not needed
    job = json.loads(caller.contents(descriptors[JOB]))
    os.close(descriptors[JOB])
    device.take_pool(descriptors[POOL], job["pool_bytes"])
    bundle = caller.contents(descriptors[BUNDLE])
    result = descriptors[ARENA]
    worker = make_worker(server.library, device, page, job, descriptors[INPUTS], result)
    own.send(b"l")  # from here on a candidate's code may run, and what its first calls have left is read
    own.close()
    tells = job["role"] == "examine" or job["examined_later"]
    if job["role"] == "candidate" and not tells:
        gpu_first_calls.use(result)
    for descriptor in descriptors[:JOB]:
        if descriptor != result or not tells:
            os.close(descriptor)
    if job["role"] == "examine":
        gpu_first_calls.examine(worker, device, bundle, result)
    worker.run(bundle)


def make_worker(library, device, page, job, inputs, result):
    import caller
    kind = device.name

    class GpuCalls(caller.Calls):
        """Calls whose outputs lie in the pool. The checks of what they returned run beside the GPU's work."""

        device = kind

        def check(self, returned=None):
            super().check(returned)
            if returned is None:
                device.synchronize()

    class EmptyGpuCalls(GpuCalls):
        """An empty batch has one small kernel: to wait for work of the GPU is a cost of every batch too."""

        def check(self, returned=None):
            if returned is None:
                self.small.zero_()
            super().check(returned)

    class GpuWorker(caller.Worker):
        def __init__(self):
            self.library, self.job, self.page = library, dict(job, device=device.name), page
            self.tensors = Slots(device, job, inputs)
            self.slots = (ctypes.c_uint16 * caller.MOST_CALLS)()
            self.empty = None
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = job["tf32"]

        def load(self, bundle):
            if job["role"] != "reference":
                taken, module, holders = caller.load_candidate(self.job, bundle, synchronize=device.synchronize)
                return GpuCalls(library, page, taken, self.tensors.slots_of(taken), module, holders)
            with torch.device(device.name):
                module = caller.ReferenceModule(self.job)
                # Its outputs are named and never computed: they take no room in the pool. No block starts there.
                empty = caller.EmptyModule(self.job, [device.view(device.pool + 256, each) for each in job["outputs"]])
                small = torch.zeros(1)
            slots = self.tensors.slots
            self.empty = EmptyGpuCalls(library, page, self.job, slots, empty, list(empty._parameters.values()))
            self.empty.small = small
            return GpuCalls(library, page, self.job, slots, module, list(module._parameters.values()))

        def examine(self, slots):
            described = gpu_first_calls.recorded(device, self.calls, slots)
            device.library.KevinGpuRelease()  # the room of what recording took
            gpu_first_calls.write(result, described)

    return GpuWorker()
