"""Extensions that are compiled once more: rebuild_extensions_test.py SOURCE_FOLDER. Ends with 77 where there is no g++ or torch."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPT = os.path.join(sys.argv[1], "env/python/rebuild_extensions.py")
if shutil.which("g++") is None or importlib.util.find_spec("torch") is None:
    sys.exit(77)

ON_LOAD = """
#include <cstdio>
__attribute__((constructor)) static void when_loaded() { std::fclose(std::fopen("it_ran", "w")); }
"""
OWN = "#include <torch/extension.h>\ntorch::Tensor own(torch::Tensor x) { return x; }\n"


def inline(number, **options):
    return {"file": f"own-{number:032x}-0.so", "own": True, "name": "own", "cpp_sources": OWN, "cuda_sources": None,
            "options": {"functions": ["own"], **options}}


class TestRebuild(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def rebuilt(self, asked, status=0):
        """(names of the files of the bundle but the first, what the script printed)"""
        with open(os.path.join(self.folder, "header.json"), "w") as file:
            json.dump({"asked": asked}, file)
        ran = subprocess.run([sys.executable, "-I", "-B", SCRIPT, os.path.join(self.folder, "none")], cwd=self.folder,
                             capture_output=True, text=True, check=False)
        self.assertEqual(ran.returncode, status, ran.stderr)
        if status:
            return [], ran.stderr
        with open(os.path.join(self.folder, "candidate.so"), "rb") as file:
            header = json.loads(file.readline())
            self.assertEqual(len(file.read()), sum(each["bytes"] for each in header["files"]))
        self.assertEqual(header["files"][0], {"name": "candidate.py", "bytes": 0})
        return [each["name"] for each in header["files"][1:]], ran.stderr

    def test_what_is_known_is_compiled(self):
        flags = ["-O3", "-march=native -ffast-math", "-DNDEBUG", "-DSIZE=4", "-fopenmp", "-std=c++17", "-mprefer-vector-width=512"]
        own = inline(1, extra_cflags=flags, extra_ldflags=["-fopenmp", "-lm"], extra_include_paths=[], use_pch=False)
        names, said = self.rebuilt([own])
        self.assertEqual((names, said.count("is not known")), ([own["file"]], 0))

    def test_what_is_not_known_is_left_out(self):
        flags = ["-fplugin=plugin", "-fplugin=./plugin.so", "-Wl,--plugin=./plugin.so", "-specs=x", "@flags", "-B.", "-include", "-I/tmp",
                 "-fprofile-use=x", "-fmodule-mapper=x", "-DX=`touch it_ran`", '-DX="`touch it_ran`"', "-DX=$(touch it_ran)",
                 "-O3;touch it_ran", "-x", "-wrapper", "-fuse-ld=x", "x.cpp"]
        strange = [inline(10 + i, extra_cflags=["-O3", flag]) for i, flag in enumerate(flags)]
        strange += [{**one, "own": False} for one in strange[:2]]
        strange += [inline(60, extra_ldflags=["-l:libopenblas.a"]), inline(61, extra_include_paths=["/tmp"]),
                    {**inline(62), "file": "../own-x.so"}, {**inline(63), "name": "../own"}, {**inline(64), "name": "o;wn"}]
        for begin in range(0, len(strange), 16):
            some = strange[begin:begin + 16]
            names, said = self.rebuilt(some)
            self.assertEqual(names, [])
            self.assertEqual(said.count("is not known"), len(some), said)
        self.assertFalse(os.path.exists(os.path.join(self.folder, "it_ran")))

    def test_what_fails_is_told(self):
        _, said = self.rebuilt([{**inline(5), "cpp_sources": "no text of C++"}], status=1)
        self.assertIn("did not compile once more", said)
        self.rebuilt([7], status=1)

    def test_nothing_that_was_compiled_runs(self):
        files = {"file": f"own-{2:032x}-1.so", "own": False, "name": "on_load", "options": {"is_python_module": False},
                 "files": {os.path.join(self.folder, "csrc/on_load.cpp"): ON_LOAD}}
        same = {**files, "file": f"own-{6:032x}-2.so", "name": "again"}
        own = {**inline(3), "cpp_sources": OWN + ON_LOAD}
        names, said = self.rebuilt([files, same, own])
        self.assertEqual(names, [files["file"], same["file"], own["file"]], said)
        self.assertFalse(os.path.exists(os.path.join(self.folder, "it_ran")))

    def test_no_file_is_written_elsewhere_or_over_another(self):
        with tempfile.TemporaryDirectory() as elsewhere:
            for path in (os.path.join(elsewhere, "x.cpp"), "../x.cpp", "header.json", f"build-{4:032x}/main.cpp", "a\nb.cpp", "a b.cpp"):
                files = {"file": f"own-{4:032x}-0.so", "own": False, "name": "x", "files": {path: ON_LOAD}, "options": {}}
                names, said = self.rebuilt([files])
                self.assertEqual(names, [])
                self.assertIn("is not known", said)
                shutil.rmtree(os.path.join(self.folder, f"build-{4:032x}"))
            self.assertEqual(os.listdir(elsewhere), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
