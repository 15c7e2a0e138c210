"""Marks of stages in a Python text, without torch: stage_timer_test.py SOURCE_TREE"""

import os
import sys
import tempfile
import traceback
import unittest

sys.path.insert(0, os.path.join(sys.argv.pop(1), "env/python"))
import stage_timer

TEXT = '''from __future__ import annotations
# stage top
NOTE = """
# stage pack
"""


def helper(seen):
    """Of forward."""
    # stage pack
    seen.append("packed")
    return [
        # stage pack
        1]


class ModelNew:
    # stage class
    def forward(self, seen):
        # stage pack
        helper(seen)
        for i in range(2):
            # stage multiply
            if i == 0:
                seen.append("first")
            else:
                # stage other
                seen.append("second")
        # no stage
        # stage  pack\t
        seen.append("end")  # stage multiply
        # stage unknown
        match i:
            case 1:
                # stage multiply
                return seen
'''
NAMES = ["pack", "multiply", "other"]


def run(text, calls=1, names=None):
    """(the stages in the order of their marks, what the timer printed)"""
    timer, order = stage_timer.Timer(), []
    module = {"__name__": "candidate", stage_timer.TIMER: lambda stage: (order.append(stage), timer.mark(stage))}
    exec(stage_timer.marked_code(text, "candidate.py", names or NAMES), module)
    forward, kept = timer.around(module["ModelNew"].forward), os.dup(2)
    with tempfile.TemporaryFile() as printed:
        os.dup2(printed.fileno(), 2)
        try:
            for _ in range(calls):
                forward(None, [])
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        printed.seek(0)
        return order, printed.read().decode()


class Marks(unittest.TestCase):
    def test_marks_between_statements_become_calls(self):
        self.assertEqual(run(TEXT)[0], [1, 1, 2, 2, 3, 1, 2])

    def test_lines_keep_their_numbers(self):
        text = TEXT.replace("return seen", "return missing")
        try:
            run(text)
            self.fail("there is no `missing`")
        except NameError as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
        self.assertEqual(last.lineno, text[:text.index("return missing")].count("\n") + 1)

    def test_a_text_without_marks_is_the_same(self):
        text = "class ModelNew:\n    def forward(self, seen):\n        return seen\n"
        self.assertEqual(run(text)[0], [])


class Times(unittest.TestCase):
    TEXT = ("import time\nclass ModelNew:\n    def forward(self, seen):\n        time.sleep(0.001)\n        # stage pack\n"
            "        time.sleep(0.002)\n        # stage multiply\n        return time.sleep(0.008)\n")

    def test_the_first_call_is_left_out_and_sums_grow(self):
        self.assertEqual(run(self.TEXT, 1)[1], "")
        lines = run(self.TEXT, 6)[1].split("\n")
        lines = [line.split() for line in lines if line]
        self.assertEqual([line[0] for line in lines], ["kevin-stage-times"] * 3)  # after 1, 2 and 4 calls
        sums = [[int(word) for word in line[1:]] for line in lines]
        self.assertEqual({len(line) for line in sums}, {17})
        before, pack, multiply = sums[-1][:3]
        self.assertTrue(4e6 <= before < pack < multiply)
        self.assertTrue(sums[0][2] < sums[1][2] < sums[2][2])

    def test_a_device_is_waited_for_at_each_border(self):
        seen = []
        timer = stage_timer.Timer(synchronize=lambda: seen.append("wait"))
        timer.around(lambda: (seen.append("before"), timer.mark(1), seen.append("pack")))()
        self.assertEqual(seen, ["wait", "before", "wait", "pack", "wait"])


if __name__ == "__main__":
    unittest.main()
