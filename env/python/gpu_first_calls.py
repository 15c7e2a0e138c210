"""The first calls of a candidate on a GPU: which kernels a call has, and how long they take. Where they may compile, in a
process of their own that may run compilers: then also what is compiled (Triton's and Inductor's caches), and what Triton's
autotuner chooses. Timed workers get the caches and the choices. Else in the worker that is timed afterwards.

What is written here are words of a process that ran the candidate: they decide about labels, not about time or correctness.
"""

import io
import json
import os
import tarfile
import time

import torch

import autotune

CACHES = {"triton": "/tmp/triton", "inductor": "/tmp/inductor"}  # as in python_workers.cc
MOST_CACHE_BYTES = 128 << 20
MOST_CACHE_FILES = 10000
MOST_KERNELS = 200
EXAMINED_CALLS = 5
SLOW_CALL_S = 0.1  # of such calls one is examined
FLUSHED_BYTES = 128 << 20


def examine(worker, device, bundle, result):
    """The numbers of a few calls, and the caches, to the file `result`; then the process ends."""
    described = {"error": ""}
    try:
        with torch.no_grad():
            calls = worker.load(bundle)
            slots = list(range(len(worker.tensors.slots)))[:EXAMINED_CALLS]
            for _ in range(2):
                start = time.monotonic()
                calls.run(slots[:1])
                calls.check()
            if time.monotonic() - start > SLOW_CALL_S:
                slots = slots[:1]
            else:
                calls.run(slots)
                calls.check()
            described.update(profiled(device, calls, slots), choices=autotune.choices())
    except BaseException as error:
        import caller
        described["error"] = caller.describe(error)
    write(result, described, packed_caches())
    os._exit(0)


def recorded(device, calls, slots):
    """The same numbers, of calls in a process that is timed later."""
    described = {"error": ""}
    try:
        described.update(profiled(device, calls, slots))
        device.end_recorder()
    except BaseException as error:
        import caller
        described["error"] = caller.describe(error)
    return described


def write(result, described, caches=b""):
    with os.fdopen(os.dup(result), "wb") as file:
        file.seek(0)
        file.write(json.dumps(described).encode() + b"\n" + caches)
        file.truncate()


def profiled(device, calls, slots):
    """The kernels of a call, and how long the device is busy with it."""
    if calls.inputs[0] and not any(each.is_cuda for each in calls.inputs[0] if isinstance(each, torch.Tensor)):
        calls.run(slots)
        return {"calls": len(slots), "kernels": [], "device_us": None, "least_us": None}
    times_us, by_name = [], {}
    for slot in slots:  # one after another: on streams of their own they would run at once
        forget_inputs(device)

        def work():
            calls.run([slot])
            calls.check()

        spans = [span for span in device.activities_of(work) if span[1] > span[0]]
        busy, end = 0, 0
        for start, stop, name in sorted(spans):
            by_name[name] = by_name.get(name, 0) + (stop - start) * 1e-3 / len(slots)
            busy += max(0, stop - max(start, end))
            end = max(end, stop)
        times_us.append(busy * 1e-3)
    kernels = sorted(by_name.items(), key=lambda item: -item[1])[:MOST_KERNELS]
    return {"calls": len(slots), "kernels": [[name[:400], us] for name, us in kernels],
            "device_us": sum(times_us) / len(slots) if kernels else None,
            "least_us": min(times_us) if kernels else None}


def forget_inputs(device):
    """As in a batch, where the inputs of a call are no longer in a cache."""
    try:
        torch.empty(FLUSHED_BYTES, dtype=torch.uint8, device=device.name).zero_()
    except torch.cuda.OutOfMemoryError:
        pass
    device.synchronize()


def packed_caches():
    """All files of the folders, as unpack_caches takes them."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for top, folder in CACHES.items():
            for place, _, names in os.walk(folder):
                for name in names:
                    path = os.path.join(place, name)
                    if os.path.islink(path) or not os.path.isfile(path):
                        continue
                    with open(path, "rb") as file:
                        member, facts = tarfile.TarInfo(top + path[len(folder):]), os.fstat(file.fileno())
                        member.size, member.mode, member.mtime = facts.st_size, facts.st_mode & 0o777, int(facts.st_mtime)
                        archive.addfile(member, file)
    content = packed.getvalue()
    return content if len(content) <= MOST_CACHE_BYTES else b""


def use(descriptor):
    """What the candidate's own first calls have left, whose process could write anything there. Of the caches, what is no plain
    archive of files for their folders is left out as a whole."""
    import caller
    described, _, packed = caller.contents(descriptor).partition(b"\n")
    try:
        autotune.pin(json.loads(described)["choices"])
    except Exception:
        pass
    try:
        unpack_caches(packed)
    except Exception:
        pass


def unpack_caches(packed):
    if len(packed) > MOST_CACHE_BYTES:
        return
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:") as archive:
        for path, member in files_of(archive):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(archive.extractfile(member).read())
            os.chmod(path, member.mode & 0o777 | 0o600)
            os.utime(path, (member.mtime, member.mtime))


def files_of(archive):
    """(path, member) of all files; raises ValueError where anything else is there."""
    files, all_bytes = [], 0
    for count, member in enumerate(archive):
        top, *rest = member.name.split("/")
        all_bytes += member.size
        is_plain = member.type == tarfile.REGTYPE and not member.issparse()
        is_inside = top in CACHES and rest and not any(part in ("", ".", "..") for part in rest)
        if not is_plain or not is_inside or count >= MOST_CACHE_FILES or all_bytes > MOST_CACHE_BYTES:
            raise ValueError(member.name)
        files.append((os.path.join(CACHES[top], *rest), member))
    return files
