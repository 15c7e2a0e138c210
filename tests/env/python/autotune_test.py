"""Choices of Triton's autotuner (env/python/autotune.py) between processes, with a stand-in for a kernel: a GPU would be
needed to measure one. Arguments: the checkout."""

import importlib.util
import os
import subprocess
import sys
import tempfile

if importlib.util.find_spec("triton") is None or importlib.util.find_spec("torch") is None:
    print("skipped: this Python has no torch with Triton")
    sys.exit(77)
sys.path.insert(0, os.path.join(sys.argv[1], "env/python"))

KERNEL = '''
import json, os, sys
sys.path.insert(0, sys.argv[1])
import autotune
autotune.install()
autotune.pin(json.loads(sys.argv[2]))
import triton
from triton.runtime.autotuner import Autotuner


def scale(n, BLOCK): pass


class Kernel:
    fn = staticmethod(scale)
    ran = []

    def run(self, n, BLOCK, **options):
        self.ran.append([n, BLOCK])


measured = []


def do_bench(call, quantiles):
    measured.append(1)
    call()
    n, block = kernel.ran.pop()
    return [float(block if n > 100 else -block)] * 3


kernel = Kernel()
tuned = Autotuner(kernel, ["n", "BLOCK"], [triton.Config({"BLOCK": 2 ** i}) for i in range(4, 4 + int(sys.argv[3]))], ["n"], None, None,
                  do_bench=do_bench)
for n in json.loads(sys.argv[4]):
    tuned.run(n)
os.write(2, json.dumps([kernel.ran, len(measured), autotune.choices()]).encode())
'''

ENVIRONMENT = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}


def process(pinned, sizes, configs=5):
    """(what ran, how often a configuration was measured, the choices, the log)"""
    import json
    done = subprocess.run([sys.executable, "-c", KERNEL, os.path.join(sys.argv[1], "env/python"), json.dumps(pinned), str(configs),
                           json.dumps(sizes)], capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    return (*json.loads(done.stderr), done.stdout)


def test_one_choice():
    ran, measured, choices, log = process([], [8, 8])
    assert (ran, measured) == ([[8, 256], [8, 256]], 5), (ran, measured)
    assert log == "", log
    assert [choice["key"] for choice in choices] == ["(8,)"], choices
    # Also for a size that was not seen.
    ran, measured, _, log = process(choices, [8, 8, 1000])
    assert (ran, measured) == ([[8, 256], [8, 256], [1000, 256]], 0), (ran, measured)
    assert log == "autotuned scale: BLOCK: 256, num_warps: 4, num_ctas: 1, num_stages: 3, maxnreg: None\n", log


def test_a_choice_for_each_size():
    ran, measured, choices, _ = process([], [8, 1000])
    assert (ran, measured) == ([[8, 256], [1000, 16]], 10), (ran, measured)
    ran, measured, _, log = process(choices, [1000, 8])
    assert (ran, measured) == ([[1000, 16], [8, 256]], 0), (ran, measured)
    assert "autotuned scale for (8,): BLOCK: 256, " in log and "autotuned scale for (1000,): BLOCK: 16, " in log, log


def test_other_lists_and_forged_choices_are_left_to_the_autotuner():
    _, _, choices, _ = process([], [8])
    assert process(choices, [8], configs=4)[:2] == ([[8, 128]], 4)
    for forged in ([dict(choices[0], config="BLOCK: 7")], [dict(choices[0], tuner="other")],
                   [choices[0], dict(choices[0], key="__import__('os')", config=choices[0]["config"].replace("256", "16"))]):
        ran, measured, _, _ = process(forged, [3])
        assert (ran, measured) == ([[3, 256]], 5), (forged, ran, measured)


def test_the_interpreter_takes_the_first():
    source = '''
import sys
sys.path.insert(0, sys.argv[1])
import autotune
autotune.install()
import torch, triton, triton.language as tl


@triton.autotune(configs=[triton.Config({"BLOCK": block}) for block in (64, 128, 256)], key=["n"],
                 prune_configs_by={"early_config_prune": lambda configs, nargs, **options: configs[1:]})
@triton.jit
def relu(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.maximum(tl.load(x + at, mask=at < n), 0.0), mask=at < n)


x = torch.randn(1000)
out = torch.empty_like(x)
for _ in range(2):
    relu[lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)](x, out, 1000)
assert torch.equal(out, x.relu())
'''
    with tempfile.TemporaryDirectory() as folder:  # the interpreter reads the text
        path = os.path.join(folder, "interpreted.py")
        with open(path, "w") as file:
            file.write(source)
        done = subprocess.run([sys.executable, path, os.path.join(sys.argv[1], "env/python")], capture_output=True, text=True,
                              env=dict(os.environ, TRITON_INTERPRET="1", CUDA_VISIBLE_DEVICES=""))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("autotuned relu: BLOCK: 128, ") and done.stdout.count("\n") == 1, done.stdout


test_one_choice()
test_a_choice_for_each_size()
test_other_lists_and_forged_choices_are_left_to_the_autotuner()
test_the_interpreter_takes_the_first()
print("choices of the autotuner: passed")
