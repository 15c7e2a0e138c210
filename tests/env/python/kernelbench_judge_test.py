"""KernelBench's method on candidates whose verdict is known: kernelbench_judge_test.py SOURCE_FOLDER. Ends with 77 where this
Python has no torch."""

import importlib.util
import io
import json
import os
import sys
import tempfile
import unittest
import unittest.mock

sys.path.insert(0, os.path.join(sys.argv[1], "env/python"))
if importlib.util.find_spec("torch") is None:
    sys.exit(77)

import kernelbench_judge
import torch

REFERENCE = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
    def forward(self, x):
        return torch.relu(self.linear(x))
def get_inputs():
    return [torch.{draw}(16, 8)]
def get_init_inputs():
    return [8]
"""
HEAD = """
import torch
import torch.nn as nn
class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        {before}
        self.{name} = nn.Linear(width, width)
    def forward(self, x):
        y = self.{name}(x)
        return {result}
"""


def judged(result="torch.relu(y)", own_file=True, draw="rand", before="pass", name="linear", precision="fp32", source=None,
           on_gpu=False, limit_s=0.2):
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: os.path.join(folder, name) for name in ("reference", "bundle", "folder")}
        paths["reference"] += ".py"
        with open(paths["reference"], "w", encoding="utf-8") as file:
            file.write(REFERENCE.format(draw=draw))
        text = (source or HEAD.format(result=result, before=before, name=name)).encode()
        header = {"files": [{"name": "candidate.py", "bytes": len(text)}], "extensions": {}, "kind": "modelnew"}
        with open(paths["bundle"], "wb") as file:
            file.write(json.dumps(header).encode() + b"\n" + text)
        job = {**paths, "own_file": own_file, "precision": precision, "threads": 1, "timing_limit_s": limit_s, "library": "",
               "device": "cpu"}
        judge = kernelbench_judge.Judge(job, io.StringIO())
        judge.on_gpu = on_gpu
        try:
            judge.run()
        except kernelbench_judge.Failed as error:
            judge.verdict["reason"] = str(error)
        return judge.verdict


# Its kernel is fastest with the last configuration, by the clock of the stand-in.
TUNED = """
import torch
import torch.nn as nn
import triton
from triton.runtime.autotuner import Autotuner
measured, used = [], []
def kernel(y, BLOCK):
    pass
class Kernel:
    fn = staticmethod(kernel)
    def run(self, y, BLOCK, **options):
        used.append(BLOCK)
def do_bench(call, quantiles):
    call()
    measured.append(used.pop())
    return [1 / measured[-1]] * 3
tuned = Autotuner(Kernel(), ["y", "BLOCK"], [triton.Config({"BLOCK": 64 * n}) for n in (1, 2, 3)], [], None, None,
                  do_bench=do_bench)
class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
    def forward(self, x):
        y = torch.relu(self.linear(x))
        tuned.run(y)
        return y
"""


class Verdicts(unittest.TestCase):
    def test_correct_and_timed(self):
        verdict = judged()
        self.assertEqual((verdict["correct"], verdict["trials_passed"], verdict["max_difference"]), (True, 5, 0.0))
        self.assertEqual(verdict["input_shapes"], [[16, 8]])
        self.assertGreater(verdict["speedup"], 0)
        self.assertFalse(verdict["excessive_speedup"])

    def test_nan_is_no_small_difference(self):
        verdict = judged(result="torch.relu(y).masked_fill(y > 0, float('nan'))")
        self.assertIn("one side is NaN", verdict["reason"])
        self.assertEqual((verdict["correct"], verdict["max_difference"]), (False, None))

    @unittest.skipIf(importlib.util.find_spec("triton") is None, "no Triton")
    def test_the_autotuner_measures_in_the_first_trial_alone(self):
        from triton import knobs
        with knobs.runtime.scope():
            knobs.runtime.interpret = True  # as on a CPU
            verdict = judged(source=TUNED)
        self.assertEqual((verdict["correct"], verdict["reason"]), (True, ""))
        candidate = sys.modules["candidate"]
        self.assertEqual(candidate.measured, [64, 128, 192])
        self.assertEqual(len(candidate.used), verdict["trials"] + kernelbench_judge.WARM_UPS + verdict["timed_calls"])
        self.assertEqual(set(candidate.used), {192})

    def test_one_tolerance_for_each_precision(self):
        for precision, difference, is_correct in (("fp32", 8e-5, True), ("fp32", 4e-4, False), ("fp16", 4e-4, True),
                                                  ("bf16", 0.1, False)):
            with self.subTest(precision=precision, difference=difference):
                verdict = judged(f"torch.relu(y) + {difference}", precision=precision)
                self.assertEqual(verdict["correct"], is_correct)
                self.assertEqual("differ by more than" in verdict["reason"], not is_correct)

    def test_the_seed_is_the_same_and_not_the_weights(self):
        verdict = judged(before="torch.rand(1)")  # one more number drawn: other weights
        self.assertFalse(verdict["correct"])
        self.assertTrue(judged(before="torch.rand(1)", own_file=False)["correct"])  # the candidate's weights, by name
        other = judged(before="torch.rand(1)", own_file=False, name="layer")
        self.assertFalse(other["correct"])
        self.assertTrue(any("no weight linear.weight" in each for each in other["differs"]))

    def test_inputs_are_uniform_without_its_own_file(self):
        # abs(x) is x in [0, 1), and is not for normal numbers.
        self.assertTrue(judged("torch.relu(self.linear(x.abs()))", own_file=False, draw="randn")["correct"])
        self.assertFalse(judged("torch.relu(self.linear(x.abs()))", own_file=True, draw="randn")["correct"])
        self.assertIs(torch.randn, sys.modules["torch"].randn)

    def test_trials_have_the_five_first_seeds_after_42(self):
        seen = []
        source = HEAD.format(result="torch.relu(y)", before="import kernelbench_seeds; self.seen = kernelbench_seeds.seen",
                             name="linear").replace("y = self", "self.seen.append(x.clone()); y = self")
        sys.modules["kernelbench_seeds"] = type(sys)("kernelbench_seeds")
        sys.modules["kernelbench_seeds"].seen = seen
        self.assertTrue(judged(source=source)["correct"])
        torch.manual_seed(42)
        seeds = [torch.randint(0, 2**32 - 1, (1,)).item() for _ in range(5)]
        for seed, x in zip(seeds, seen):
            torch.manual_seed(seed)
            self.assertTrue(torch.equal(torch.rand(16, 8), x))

    def test_on_a_gpu_events_around_the_call_alone_tell_its_time(self):
        log, now = [], [0.0]

        class Event:
            def __init__(self, enable_timing):
                self.is_timed = enable_timing

            def record(self):
                self.at = now[0]
                log.append("record")

            def elapsed_time(self, end):
                return end.at - self.at

        class Tensor:
            def fill_(self, value):
                now[0] += 1000  # ms; no part of the call
                log.append("flush")

        def relu(x):
            log.append("call")
            now[0] += 50 if log.count("call") == first_timed else 2
            return real(x)

        real, empty, first_timed = torch.relu, torch.empty, 2 * 5 + kernelbench_judge.WARM_UPS + 1
        with unittest.mock.patch.multiple(torch.cuda, Event=Event, synchronize=lambda device: log.append("wait"),
                                          empty_cache=lambda: log.append("empty")), \
             unittest.mock.patch.multiple(torch, relu=relu, empty=lambda *size, **options: Tensor()
                                          if options.get("dtype") == torch.int64 else empty(*size, **options)):
            verdict = judged(on_gpu=True, limit_s=60)
        self.assertEqual((verdict["correct"], verdict["timed_calls"]), (True, 100))
        self.assertEqual((verdict["candidate_ms"], verdict["reference_ms"]), (2.0, 2.0))  # the first, of 50 ms, is dropped
        self.assertEqual(log[log.index("empty"):][:8], ["empty", "wait", "flush", "record", "call", "record", "wait", "wait"])
        self.assertEqual(log.count("flush"), 2 * 101)

    def test_the_first_forward_of_a_trial_begins_at_its_seed(self):
        # What is drawn in forward is that of the reference, with its seed, whatever the inputs took.
        seen = type(sys)("kernelbench_draws")
        seen.draws, sys.modules["kernelbench_draws"] = [], seen
        with unittest.mock.patch.object(torch, "relu", lambda x, real=torch.relu: (
                seen.draws.append(torch.rand(1).item()), real(x))[1]):
            judged()
        torch.manual_seed(42)
        seed = torch.randint(0, 2**32 - 1, (1,)).item()
        torch.manual_seed(seed)
        self.assertEqual(seen.draws[0], torch.rand(1).item())

    def test_failures_have_their_reason(self):
        self.assertIn("shape (16, 7), expected (16, 8)", judged("y[:, 1:]")["reason"])
        self.assertIn("it raises: ValueError: no", judged(
            source=HEAD.format(result="y", before="pass", name="linear").replace("y = ", "raise ValueError('no'); y = "))["reason"])
        self.assertIn("cannot be constructed", judged(before="raise KeyError('k')")["reason"])
        broken = judged(source="import a_module_that_is_not_there\n")
        self.assertFalse(broken["compiled"])
        self.assertIn("ModuleNotFoundError", broken["reason"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
