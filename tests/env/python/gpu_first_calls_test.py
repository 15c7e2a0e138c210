"""What a GPU worker keeps of its candidate's first calls (env/python/gpu_first_calls.py): files come back as they were, and an
archive that is anything else is left out. Arguments: the checkout."""

import importlib.util
import io
import os
import sys
import tarfile
import tempfile

if importlib.util.find_spec("torch") is None:
    print("skipped: this Python has no torch")
    sys.exit(77)
sys.path.insert(0, os.path.join(sys.argv[1], "env/python"))
import gpu_first_calls  # noqa: E402


def file_of(content):
    descriptor = os.memfd_create("result")
    os.write(descriptor, content)
    return descriptor


def archive_of(*members):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for member, content in members:
            archive.addfile(member, io.BytesIO(content) if content else None)
    return b"{}\n" + packed.getvalue()


def member(name, content=b"a", **facts):
    made = tarfile.TarInfo(name)
    made.size = len(content)
    for fact, value in facts.items():
        setattr(made, fact, value)
    return made, content


def files_in(folder):
    return sorted(os.path.relpath(os.path.join(place, name), folder) for place, _, names in os.walk(folder) for name in names)


def use(folder):
    gpu_first_calls.CACHES = {"triton": os.path.join(folder, "triton"), "inductor": os.path.join(folder, "inductor")}


def test_files_come_back():
    long = "inductor/" + "d" * 90 + "/" + "e" * 120
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        use(first)
        for name in ("triton/a/kernel.so", long):
            os.makedirs(os.path.dirname(os.path.join(first, name)))
            with open(os.path.join(first, name), "w") as file:
                file.write(name)
        os.chmod(os.path.join(first, "triton/a/kernel.so"), 0o755)
        os.link(os.path.join(first, "triton/a/kernel.so"), os.path.join(first, "triton/same"))
        os.symlink("/etc/passwd", os.path.join(first, "triton/link"))
        os.mkfifo(os.path.join(first, "triton/pipe"))
        content = b"{}\n" + gpu_first_calls.packed_caches()
        use(second)
        gpu_first_calls.use(file_of(content))
        assert files_in(second) == [long, "triton/a/kernel.so", "triton/same"], files_in(second)
        with open(os.path.join(second, long)) as file:
            assert file.read() == long
        assert os.stat(os.path.join(second, "triton/a/kernel.so")).st_mode & 0o777 == 0o755


def test_anything_else_is_left_out():
    good = member("triton/good")
    large = member("triton/large", b"")
    large[0].size = gpu_first_calls.MOST_CACHE_BYTES + 1
    forged = [archive_of(good, bad) for bad in (
        member("../out"), member("/etc/out"), member("triton/../../out"), member("triton//out"), member("other/out"), member("triton"),
        member("triton/link", b"", type=tarfile.SYMTYPE, linkname="/etc"),
        member("triton/same", b"", type=tarfile.LNKTYPE, linkname="triton/good"),
        member("triton/pipe", b"", type=tarfile.FIFOTYPE), member("triton/device", b"", type=tarfile.CHRTYPE),
        member("triton/sparse", b"", type=tarfile.GNUTYPE_SPARSE), member("triton/good/under"), large)]
    forged += [b"", b"\n", b"{}", b"{}\n" + bytes(range(256)) * 20, archive_of(good)[:700]]
    forged += [archive_of(*[member(f"triton/{i}", b"") for i in range(gpu_first_calls.MOST_CACHE_FILES + 1)])]
    for content in forged:
        with tempfile.TemporaryDirectory() as folder:
            use(os.path.join(folder, "caches"))
            gpu_first_calls.use(file_of(content))
            found = [name for name in files_in(folder) if name != "caches/triton/good"]
            assert not found, (content[:200], found)


test_files_come_back()
test_anything_else_is_left_out()
print("caches of a GPU worker: passed")
