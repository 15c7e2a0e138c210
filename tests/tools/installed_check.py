"""Uses a package that pip built with --inference-only: installed_check.py NAME, in the folder of the installation."""

import importlib
import os
import sys

import torch

sys.path.insert(0, os.getcwd())
package = importlib.import_module(sys.argv[1])
inputs = package.example_inputs()
found, expected = package.run(*inputs), package.reference(*inputs)
for ours, theirs in zip(found, expected, strict=True):
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
try:
    package.run(inputs[0].requires_grad_(), *inputs[1:])
    raise AssertionError("gradients are taken")
except RuntimeError as error:
    assert "was exported for inference only" in str(error), error
print("the installed package is one")
