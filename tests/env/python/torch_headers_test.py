"""torch's headers in precompiled form, with a small header in their place: torch_headers_test.py SOURCE_FOLDER. Ends with 77 where
there is no g++."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, os.path.join(sys.argv[1], "env/python"))
if shutil.which("g++") is None:
    sys.exit(77)

import torch_headers


class TestFlags(unittest.TestCase):
    def test_those_that_a_set_is_made_with(self):
        self.assertEqual(torch_headers.set_flags(["-O3", "-DSIZE=4", "-march=native -ffast-math", "-Wall", "-std=c++20"]),
                         ["-O3", "-march=native", "-ffast-math", "-std=c++20"])
        for none in (None, [], ()):
            self.assertEqual(torch_headers.set_flags(none), [])

    def test_others_have_no_set(self):
        for flag in ("-fplugin=evil.so", "-fprofile-use", "-fsyntax-only", "-wrapper", "-include", "-B.", "-specs=x", "@file", "-o",
                     "-DNDEBUG", "-D_GLIBCXX_ASSERTIONS", "-I.", "-fsanitize=address", "-std=c++98", "x.cpp"):
            self.assertIsNone(torch_headers.set_flags(["-O3", flag]), flag)

    def test_what_is_no_list_of_flags(self):
        for flags in (["'"], [1], 3, "-O3"):
            self.assertIsNone(torch_headers.set_flags(flags), flags)
            self.assertEqual(torch_headers.attempts("/tmp/x", {"extra_cflags": flags}, False), [{"extra_cflags": flags}])


class TestHeaders(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.torch = os.path.join(self.folder, "torch")
        os.makedirs(os.path.join(self.torch, "include/torch"))
        with open(os.path.join(self.torch, "include/torch/extension.h"), "w", encoding="utf-8") as header:
            header.write("#pragma once\n#include <string>\n#ifdef FAST\ninline int fast() { return 1; }\n#endif\n"
                         "inline int of_torch() { return TORCH_API_INCLUDE_EXTENSION_H + 1; }\n")
        self.sets = os.path.join(self.folder, "a folder", "sets")

    def make(self, flags):
        """As env/python/torch_headers.cc does."""
        work, before = os.path.join(self.folder, "work"), os.getcwd()
        os.makedirs(work)
        os.chdir(work)
        try:
            made = torch_headers.make(flags, self.torch, "g++")
        finally:
            os.chdir(before)
        if made:
            os.makedirs(os.path.dirname(self.sets), exist_ok=True)
            os.rename(work, f"{self.sets}-{hashlib.sha256(chr(10).join(flags).encode()).hexdigest()}")
        return made

    def headers_of(self, options):
        """The headers that g++ reads for a text with these options, as -H prints them: '! ' before a precompiled one. The text
        includes it as load_inline does, and as its author did."""
        text = '#include <torch/extension.h>\n#include <torch/extension.h>\n#include "torch/extension.h"\n' \
               "int main() { return of_torch(); }\n"
        command = " ".join(["g++ -H -DTORCH_EXTENSION_NAME=x -DTORCH_API_INCLUDE_EXTENSION_H -isystem",
                            os.path.join(self.torch, "include"), *torch_headers.CXX_FLAGS, *options.get("extra_cflags", []),
                            "-x c++ -c - -o", os.devnull])  # by a shell, as ninja does
        return subprocess.run(command, input=text, capture_output=True, text=True, check=True, shell=True).stderr

    def test_a_text_with_these_flags_uses_them(self):
        self.assertTrue(self.make(["-O3"]))
        with_set, without = torch_headers.attempts(self.sets, {"extra_cflags": ["-O3", "-Wall"], "name": "x"}, True)
        self.assertEqual(without, {"extra_cflags": ["-O3", "-Wall"], "name": "x"})
        self.assertEqual(with_set["extra_cflags"][1:], ["-O3", "-Wall"])
        self.assertEqual(with_set["name"], "x")
        self.assertIn("! " + self.sets, self.headers_of(with_set))
        # Other macros than the set was made for: g++ reads torch's header.
        self.assertNotIn("! ", self.headers_of({"extra_cflags": [with_set["extra_cflags"][0], "-O3", "-DFAST"]}))

    def test_without_a_set_it_is_asked_for(self):
        said = []
        with mock.patch("os.write", lambda descriptor, text: said.append((descriptor, text))):
            for has_cuda in (False, True):
                options = {"extra_cflags": ["-O3", "-DX"]}
                self.assertEqual(torch_headers.attempts(self.sets, options, has_cuda), [options])
        self.assertEqual(said, [(2, b"\nkevin-build: torch/extension.h for: -O3\n")])

    def test_other_flags_make_nothing(self):
        self.assertFalse(self.make(["-O3", "-include", "x"]))
        self.assertFalse(os.path.exists(os.path.join(self.folder, "work/torch")))

    def test_as_it_is_run(self):
        script = os.path.join(sys.argv[1], "env/python/torch_headers.py")
        done = subprocess.run([sys.executable, "-I", "-B", script, "-include"], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (1, ""))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
