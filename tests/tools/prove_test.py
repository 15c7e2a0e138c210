"""What the proof of an exported file (tools/export/package/prove.py) counts as different. Arguments: the checkout."""

import importlib.util
import os
import sys
import types

if importlib.util.find_spec("torch") is None:
    print("skipped: this Python has no torch")
    sys.exit(77)
import torch

spec = importlib.util.spec_from_file_location("prove", os.path.join(sys.argv[1], "tools/export/package/prove.py"))
prove = importlib.util.module_from_spec(spec)
spec.loader.exec_module(prove)


def pair_of(original):
    case = types.SimpleNamespace(is_module=True, given=types.SimpleNamespace(call=lambda function, inputs: function(*inputs)))
    pair = object.__new__(prove.Pair)
    pair.torch, pair.job, pair.case, pair.original = torch, {"precision": "bf16"}, case, original
    pair.exported = types.SimpleNamespace(INOUTS=[])
    return pair


def compared(original, replacement, inputs):
    return prove.compare(pair_of(original), torch, replacement, inputs)


class Rounded(torch.nn.Module):
    """A sum that 16 bits round before it is compared, as a router's logits are."""

    def forward(self, x, y):
        return torch.where(x + y > 1.001, 1.0, 0.0).to(x.dtype)


class Nearer(Rounded):
    def forward(self, x, y):
        return super().forward(x.double(), y.double()).to(x.dtype)


class Wrong(Nearer):
    def forward(self, x, y):
        right = super().forward(x, y)
        return torch.cat([1 - right[:1], right[1:]])


class Overflows(Rounded):
    """In 16 bits it is infinite; a replacement that is finite there is another result."""

    def forward(self, x, y):
        return x * 3e38 * y * 4e38 * 1e-38


class OnlyHalf(Rounded):
    def forward(self, x, y):
        assert x.dtype == torch.bfloat16
        return super().forward(x, y)


inputs = [torch.tensor([0.25, 1.0], dtype=torch.bfloat16), torch.tensor([0.25, 0.0015], dtype=torch.bfloat16)]
assert Rounded()(*inputs).tolist() == [0, 0] and Nearer()(*inputs).tolist() == [0, 1]
assert compared(Rounded(), Rounded(), inputs) == (0, False)
assert compared(Rounded(), Nearer(), inputs) == (0, True)  # the original itself is wrong there
assert compared(Nearer(), Rounded(), inputs)[0] == 1  # and here the replacement
assert compared(Rounded(), Wrong(), inputs)[0] >= 1
large = [torch.tensor([1.0], dtype=torch.bfloat16), torch.tensor([2.0], dtype=torch.bfloat16)]
assert Overflows()(*large).isinf().all() and not Overflows()(*(v.double() for v in large)).isinf().any()
assert compared(Overflows(), Rounded(), large)[0] > 1
assert compared(OnlyHalf(), Nearer(), inputs)[0] >= 1  # no exact results: plain differences
print("passed")
