#!/usr/bin/env python3
"""Workers: sandboxed processes with Python and torch, one for each candidate in Python and one for the reference.

    worker.py --facts                          one JSON line about this Python, without importing torch
    worker.py LIBRARY THREADS namespaces|plain FOLDER...
                                               serves on descriptor 3; THREADS gpu: workers on a GPU (gpu_worker.py)

The second form imports torch once and then forks a worker for each packet on descriptor 3, which carries the worker's own
socket; it answers {"pid": N}. So a worker is ready within 50 ms. The evaluator becomes the worker's parent.

A worker receives a job (JSON in a memory file) with the descriptors of its memory, maps it, enters the sandbox, and only
then loads a candidate. Afterwards it makes batches of calls as the shared control page says (env/process/
shared_control_page.h). LIBRARY is kevin-python-worker.so. FOLDERs stay readable in the sandbox.

What this process says about a candidate is a message for its author. Nothing in it is believed: outputs are read, and time
is taken, by the evaluator.
"""

import contextlib
import ctypes
import gc
import importlib.util
import json
import os
import runpy
import socket
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SOCKET = 3
PAGE, INPUTS, ARENA, BUNDLE, LOG, JOB = range(6)  # the descriptors of a job
READY, LOAD_FAILED, RAISED, WRONG_OUTPUT, REFUSED = 1, 2, 3, 4, 5  # PageState


def facts():
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return {"error": "this Python has no torch", "machine": True}
    version = runpy.run_path(os.path.join(spec.submodule_search_locations[0], "version.py"))
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.dirname(os.path.realpath(sys.executable))}
    prefixes |= {path for path in sys.path if os.path.isdir(path)}
    folders = sorted({os.path.abspath(path) for path in prefixes} | {os.path.realpath(path) for path in prefixes})
    outer = [folder for folder in folders if not any(
        folder != other and folder.startswith(other.rstrip("/") + "/") for other in folders)]
    return {"torch": version["__version__"], "cuda": version.get("cuda"), "executable": sys.executable,
            "python": ".".join(map(str, sys.version_info[:3])), "folders": outer}


class Library:
    """The functions of kevin-python-worker.so."""

    def __init__(self, path):
        quick, slow = ctypes.PyDLL(path), ctypes.CDLL(path)  # the second without Python's lock, for what waits
        u32, u64, pointer = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p
        for name, result, arguments in [
                ("KevinUnshare", ctypes.c_int, []),
                ("KevinMapTwoUsers", ctypes.c_int, [ctypes.c_int]),
                ("KevinMapOwnUser", ctypes.c_int, [u32, u32]),
                ("KevinEnterSandbox", None, [ctypes.c_int, ctypes.POINTER(ctypes.c_char_p), ctypes.c_int,
                                             ctypes.c_int64, ctypes.c_int64, ctypes.c_int64]),
                ("KevinMapPage", pointer, [ctypes.c_int]),
                ("KevinUseArena", pointer, [ctypes.c_int, u64]),
                ("KevinMapInputs", None, [ctypes.c_int] * 3 + [pointer] * 4),
                ("KevinWaitGo", u32, [pointer, u32]),
                ("KevinCommand", u32, [pointer]),
                ("KevinCalls", u32, [pointer, pointer]),
                ("KevinPublish", None, [pointer, u32, u32, u64]),
                ("KevinPublishStrides", None, [pointer, u32, u32, pointer, ctypes.c_int]),
                ("KevinReturned", None, [pointer, u32]),
                ("KevinReturnOne", None, [pointer, u32, u64]),
                ("KevinDone", None, [pointer, u32]),
                ("KevinState", None, [pointer, u32, ctypes.c_char_p])]:
            function = getattr(slow if name == "KevinWaitGo" else quick, name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)


def receive(own, size, count):
    """The next message and its descriptors; nothing where the evaluator has closed its side. The error means the same: it
    closed before it had read all of ours."""
    try:
        message, descriptors, _, _ = socket.recv_fds(own, size, count)
    except ConnectionResetError:
        return b"", []
    return message, descriptors


class Server:
    """Forks workers. The process has one thread."""

    def __init__(self, library, threads, namespaces, folders):
        self.library, self.threads, self.namespaces, self.folders = library, threads, namespaces, folders
        self.socket = socket.socket(fileno=SOCKET)

    def serve(self):
        while True:
            packet, descriptors = receive(self.socket, 4096, 1)
            if not packet:
                return
            answer = self.fork(descriptors[0])
            os.close(descriptors[0])
            try:
                self.socket.send(json.dumps(answer).encode())
            except BrokenPipeError:
                return  # closed meanwhile; the worker sees the same at its own socket

    def fork(self, worker_socket):
        # The middle process enters the namespaces, so that its child is the first in them, and ends: the evaluator, which
        # takes in orphans, is the parent of that child then.
        unshared, mapped, born = os.pipe(), os.pipe(), os.pipe()
        middle = os.fork()
        if middle == 0:
            for end in (unshared[0], mapped[1], born[0]):  # so that the end of this process is seen
                os.close(end)
            self.fork_from_middle(worker_socket, unshared[1], mapped[0], born[1])
        for end in (unshared[1], mapped[0], born[1]):
            os.close(end)
        if os.read(unshared[0], 1):
            answer = b"y" if self.namespaces and self.library.KevinMapTwoUsers(middle) else b"n"
            os.write(mapped[1], answer)
        pid = os.read(born[0], 64)
        os.waitpid(middle, 0)
        for end in (unshared[0], mapped[1], born[0]):
            os.close(end)
        return {"pid": int(pid)} if pid else {"error": "cannot make namespaces"}

    def fork_from_middle(self, worker_socket, unshared, mapped, born):
        try:
            self.enter_namespaces(unshared, mapped)
            worker = os.fork()
            if worker:
                with contextlib.suppress(BrokenPipeError):
                    os.write(born, str(worker).encode())
                os._exit(0)
            os.setsid()  # a process group for the evaluator, which ends it
            run_worker(self, worker_socket)
        except BaseException as error:
            print(f"worker: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)

    def enter_namespaces(self, unshared, mapped):
        """Of the middle process, which ends where that is refused."""
        user, group = os.geteuid(), os.getegid()
        if self.namespaces and not self.library.KevinUnshare():
            os._exit(1)
        answer = b""
        with contextlib.suppress(BrokenPipeError):
            os.write(unshared, b"u")
            answer = os.read(mapped, 1)
        if not answer:
            os._exit(1)  # the server has ended
        if answer != b"y" and self.namespaces and not self.library.KevinMapOwnUser(user, group):
            os._exit(1)


def enter_sandbox(server, job):
    folders = (ctypes.c_char_p * len(server.folders))(*[folder.encode() for folder in server.folders])
    server.library.KevinEnterSandbox(server.namespaces, folders, len(server.folders), job["max_memory_bytes"],
                                     job["max_file_bytes"], job["cpu_limit_s"])


def run_worker(server, worker_socket):
    import caller
    own = socket.socket(fileno=worker_socket)
    byte, descriptors = receive(own, 1, 6)
    if not byte:
        os._exit(0)  # a spare that was not needed
    job = json.loads(caller.contents(descriptors[JOB]))
    os.close(descriptors[JOB])
    if "gpu" in job:
        import gpu_worker
        gpu_worker.run(server, own, job, descriptors)
        return
    caller.print_to(descriptors[LOG])
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:server.threads])
    worker = caller.Worker(server.library, job, descriptors)
    bundle = b""
    if job["role"] == "candidate":
        bundle = caller.contents(descriptors[BUNDLE])
    enter_sandbox(server, job)
    os.chdir("/tmp")  # a folder that can be written to, as the build's is
    for descriptor in descriptors[:JOB]:
        os.close(descriptor)
    server.socket.close()
    os.write(own.fileno(), b"l")  # from here on a candidate's code may run; the sandbox knows no send()
    own.close()
    worker.run(bundle)


def main():
    if "--facts" in sys.argv:
        print(json.dumps(facts()), flush=True)
        return
    library_path, threads, namespaces, *folders = sys.argv[1:]
    # This process may write nowhere; a worker has a /tmp of its own. A package that torch imports may ask for the folder.
    tempfile.tempdir = "/tmp"
    sys.path.insert(0, HERE)
    if threads == "gpu":
        import gpu_worker
        threads = gpu_worker.warm_up()
    import caller
    caller.warm_up(int(threads))
    library = Library(library_path)
    caller.extensions.prepare(library_path)
    if len(os.listdir("/proc/self/task")) != 1:
        raise SystemExit("worker: importing torch started threads")
    sys.path.remove(HERE)
    gc.collect()
    gc.freeze()  # so that collections do not copy the pages that workers share
    Server(library, int(threads), namespaces == "namespaces", folders).serve()


if __name__ == "__main__":
    main()
