"""The memory of a GPU worker's torch, before and after its pool comes (env/python/gpu_worker_library.cc), on a stand-in for the
driver, and what the worker sets for its allocator. Arguments: kevin-python-worker.so. Each case runs in a process of its own."""

import ctypes
import importlib.util
import os
import sys

if importlib.util.find_spec("torch") is None:
    print("skipped: this Python has no torch")
    sys.exit(77)
import torch  # noqa: E402

POOL_BYTES = 16 << 20
ERROR = ctypes.create_string_buffer(2000)


def library():
    functions = ctypes.PyDLL(sys.argv[1])
    for name in ("KevinGpuEndWarmUp", "KevinGpuTakePool"):
        getattr(functions, name).restype = ctypes.c_uint64
    assert functions.KevinGpuOpen(-1, ERROR, len(ERROR)), ERROR.value
    return functions


def take_pool(functions):
    pool = os.memfd_create("pool")
    os.ftruncate(pool, POOL_BYTES)
    base = functions.KevinGpuTakePool(-1, pool, ctypes.c_uint64(POOL_BYTES), ERROR, len(ERROR))
    assert base, ERROR.value
    return base


def lies_in(base, tensor):
    return base <= tensor.data_ptr() < base + POOL_BYTES


def mapped_bytes():
    with open("/proc/self/maps") as maps:
        places = [line.split()[0].split("-") for line in maps if "fake-device" in line]
    return sum(int(end, 16) - int(begin, 16) for begin, end in places)


def error_of(call):
    try:
        call()
    except torch.OutOfMemoryError as error:
        return str(error)
    raise AssertionError("no error")


def test_nothing_of_the_warm_up_stays():
    functions = library()
    assert mapped_bytes() > 0
    x = torch.ones(1 << 20)
    del x
    assert functions.KevinGpuEndWarmUp() == 0
    assert mapped_bytes() == 0
    assert "Of 0 MiB for a candidate" in error_of(lambda: torch.ones(5))
    base = take_pool(functions)
    assert lies_in(base, torch.ones(5))


def test_what_the_warm_up_still_uses_is_not_handed_out_again():
    functions = library()
    kept, dropped = torch.ones(1 << 20), torch.ones(1000)
    before = mapped_bytes()
    del dropped
    assert functions.KevinGpuEndWarmUp() == before
    base = take_pool(functions)
    assert not lies_in(base, kept) and float(kept.sum()) == 1 << 20
    place = kept.data_ptr()
    del kept
    functions.KevinGpuRelease()
    made = []
    while True:
        try:
            made.append(torch.empty(1 << 18))
        except torch.OutOfMemoryError:
            break
    assert len(made) == POOL_BYTES >> 20
    assert all(lies_in(base, each) and each.data_ptr() != place for each in made)


def test_statistics_and_errors_are_those_of_the_pool():
    functions = library()
    kept = torch.ones(1 << 20)
    functions.KevinGpuEndWarmUp()
    take_pool(functions)
    numbers = (ctypes.c_uint64 * 10)()
    functions.KevinGpuStatistics(numbers)
    assert list(numbers) == [0] * 9 + [POOL_BYTES]
    held = torch.empty(3 << 20, dtype=torch.uint8)
    functions.KevinGpuStatistics(numbers)
    assert numbers[0] == held.numel() and numbers[2] == 4 << 20
    text = error_of(lambda: torch.empty(32 << 20, dtype=torch.uint8))
    assert "Tried to allocate 32 MiB. Of 16 MiB for a candidate 3 MiB are allocated and 4 MiB reserved." in text
    del kept
    functions.KevinGpuStatistics(numbers)
    assert numbers[0] == held.numel() and numbers[6] == 0


def test_cudnn_never_searches():
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../env/python"))
    import gpu_worker
    torch.backends.cudnn.benchmark = True
    gpu_worker.leave_cudnn_to_its_heuristics()
    assert not torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    assert not torch.backends.cudnn.benchmark
    with torch.backends.cudnn.flags(enabled=True, benchmark=True):
        assert not torch._C._get_cudnn_benchmark()


if __name__ == "__main__":
    torch.ones(1)
    for name, test in [entry for entry in globals().items() if entry[0].startswith("test_")]:
        child = os.fork()
        if child == 0:
            try:
                test()
            except BaseException as failure:
                import traceback
                traceback.print_exception(failure)
                os._exit(1)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0, name
    print("passed")
