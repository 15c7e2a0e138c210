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

    def rebuilt(self, asked):
        """(names of the files of the bundle but the first, what the script printed)"""
        with open(os.path.join(self.folder, "asked.json"), "w") as file:
            json.dump(asked, file)
        ran = subprocess.run([sys.executable, "-I", "-B", SCRIPT, os.path.join(self.folder, "none")], cwd=self.folder,
                             capture_output=True, text=True, check=True)
        with open(os.path.join(self.folder, "candidate.so"), "rb") as file:
            header = json.loads(file.readline())
            self.assertEqual(len(file.read()), sum(each["bytes"] for each in header["files"]))
        self.assertEqual(header["files"][0], {"name": "candidate.py", "bytes": 0})
        return [each["name"] for each in header["files"][1:]], ran.stderr

    def test_what_is_known_is_compiled_and_the_rest_left_out(self):
        flags = ["-fplugin=./plugin.so", "-Wl,--plugin=./plugin.so", "-specs=x", "@flags", "-B.", "-include", "-I/tmp"]
        strange = [inline(10 + i, extra_cflags=["-O3", flag]) for i, flag in enumerate(flags)]
        strange += [inline(30, extra_ldflags=["-l:libopenblas.a"]), inline(31, extra_include_paths=["/tmp"]),
                    {**inline(32), "file": "../own-x.so"}, {**inline(33), "name": "../own"}, {**inline(34), "options": None}, 7]
        names, said = self.rebuilt([*strange[:8], inline(1, extra_cflags=["-O3", "-march=native"])])
        self.assertEqual(names, [inline(1)["file"]])
        self.assertEqual(said.count("not compiled again: Unknown"), 8)
        shutil.rmtree(os.path.join(self.folder, f"own-{1:032x}"))
        names, said = self.rebuilt(strange[8:])
        self.assertEqual(names, [])
        self.assertEqual(said.count("not compiled again"), 5)

    def test_nothing_that_was_compiled_runs(self):
        path = os.path.join(self.folder, "on_load.cpp")
        files = {"file": f"own-{2:032x}-1.so", "own": False, "name": "on_load", "files": {path: ON_LOAD},
                 "options": {"is_python_module": False}}
        own = {**inline(3), "cpp_sources": OWN + ON_LOAD}
        names, said = self.rebuilt([files, own])
        self.assertEqual(names, [files["file"], own["file"]], said)
        self.assertFalse(os.path.exists(os.path.join(self.folder, "it_ran")))

    def test_no_file_is_written_elsewhere_or_over_another(self):
        with tempfile.TemporaryDirectory() as elsewhere:
            for path in (os.path.join(elsewhere, "x.cpp"), "../x.cpp", "asked.json"):
                files = {"file": f"own-{4:032x}-0.so", "own": False, "name": "x", "files": {path: ON_LOAD}, "options": {}}
                names, said = self.rebuilt([files])
                self.assertEqual(names, [])
                self.assertIn("not compiled again: Unknown", said)
                shutil.rmtree(os.path.join(self.folder, f"build-{4:032x}"))
            self.assertEqual(os.listdir(elsewhere), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
