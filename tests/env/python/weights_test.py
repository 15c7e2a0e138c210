"""Where a candidate gets its weights from (env/python/weights.py): by name, by order and shape, at its construction, and, as
the last resort, by what its constructor draws under KernelBench's seed. Arguments: the checkout."""

import importlib.util
import os
import sys

if importlib.util.find_spec("torch") is None:
    print("skipped: this Python has no torch")
    sys.exit(77)
sys.path.insert(0, os.path.join(sys.argv[1], "env/python"))

import torch  # noqa: E402
from torch import nn  # noqa: E402

import caller  # noqa: E402, F401
import weights  # noqa: E402

torch.set_grad_enabled(False)


def param(name, shape, uniform=False, at=0.0, width=1.0):
    return {"name": name, "state_name": name, "shape": shape, "dtype": "float32", "param": True, "stored": False,
            "draw": {"uniform": uniform, "at": at, "width": width}}


W, B = param("weight", [4, 6]), param("bias", [4], at=1.0, width=0.5)
UNIFORM = param("weight", [4, 6], uniform=True, at=-0.5)


def job(*params):
    x = {"name": "x", "state_name": "x", "shape": [3, 6], "dtype": "float32", "param": False, "stored": False}
    return {"init": "[]", "precision": "float32", "forward": None, "outputs": [], "tensors": [x, *params]}


def module(forward, **made):
    class ModelNew(nn.Module):
        def __init__(self):
            super().__init__()
            for name, make in made.items():
                setattr(self, name, make())

    ModelNew.forward = forward
    return ModelNew


def linear(self, x):
    return x @ self.w.reshape(4, 6).t() + getattr(self, "b", torch.zeros(1))


def check(model, *params, is_rebuilt):
    """Its calls have the weights of each call."""
    called, held = weights.build(model, job(*params))
    assert isinstance(called, weights.Rebuilt) == is_rebuilt
    for _ in range(3):
        x = torch.randn(3, 6)
        values = [torch.randn(each["shape"]) * each["draw"]["width"] + each["draw"]["at"] for each in params]
        for holder, value in zip(held, values):
            holder.data = value
        expected = x @ values[0].t() + (values[1] if len(values) > 1 else 0)
        found = called(x)
        assert torch.allclose(found, expected, atol=1e-5), (found, expected)


def test_by_name_and_by_order():
    def named(self, x):
        return x @ self.weight.t() + self.bias

    check(module(named, bias=lambda: nn.Parameter(torch.zeros(4)), weight=lambda: nn.Parameter(torch.zeros(4, 6))), W, B,
          is_rebuilt=False)
    check(module(linear, w=lambda: nn.Parameter(torch.zeros(4, 6)), b=lambda: nn.Parameter(torch.zeros(4))), W, B, is_rebuilt=False)


def test_packed_at_its_construction():
    check(module(lambda self, x: x @ self.packed, packed=lambda: nn.Linear(6, 4, bias=False).weight.t().contiguous()), W,
          is_rebuilt=True)
    check(module(lambda self, x: self.layers[0](x), layers=lambda: [nn.Linear(6, 4)]), W, B, is_rebuilt=True)


def test_drawn_under_the_seed():
    for make in (lambda: torch.randn(4, 6), lambda: torch.empty(4, 6).normal_(), lambda: torch.normal(0.0, 1.0, (4, 6)),
                 lambda: torch.normal(torch.zeros(4, 6), 1.0), lambda: torch.randn_like(torch.empty(4, 6)),
                 lambda: torch.randn(4, 6, dtype=torch.float64).float()):
        check(module(linear, w=make), W, is_rebuilt=True)
    for make in (lambda: torch.rand(4, 6) - 0.5, lambda: nn.init.uniform_(torch.empty(4, 6), -0.5, 0.5),
                 lambda: torch.empty(4, 6).uniform_(-0.5, to=0.5)):
        check(module(linear, w=make), UNIFORM, is_rebuilt=True)
    check(module(linear, w=lambda: torch.randn(4, 6), b=lambda: torch.normal(1.0, 0.5, (4,))), W, B, is_rebuilt=True)
    check(module(linear, w=lambda: torch.randn(4, 6), b=lambda: torch.normal(torch.ones(4), torch.full((4,), 0.5))), W, B,
          is_rebuilt=True)


def test_drawn_in_another_shape():
    check(module(linear, w=lambda: torch.randn(24)), W, is_rebuilt=True)
    check(module(linear, w=lambda: nn.Parameter(torch.randn(2, 12))), W, is_rebuilt=True)
    check(module(linear, w=lambda: torch.rand(24).sub(0.5)), UNIFORM, is_rebuilt=True)
    # An equal shape goes before an equal number of values.
    check(module(linear, other=lambda: torch.randn(24), w=lambda: torch.randn(4, 6), b=lambda: torch.randn(2, 2).view(4) * 0.5 + 1), W,
          B, is_rebuilt=True)


def test_what_has_no_place_is_refused_with_both_lists():
    for model, expected in (
            (module(linear, w=lambda: torch.ones(4, 6)), "weight [4, 6]; its parameters and buffers are: none; its constructor draws: nothing"),
            (module(linear, w=lambda: torch.rand(4, 6)), "its constructor draws: [4, 6]"),  # of another kind
            (module(linear, w=lambda: nn.Parameter(torch.ones(3)), v=lambda: torch.randn(28)),
             "weight [4, 6]; its parameters and buffers are: w [3]; its constructor draws: [28]")):
        try:
            weights.build(model, job(W))
        except weights.Unmatched as error:
            assert expected in str(error), error
        else:
            raise AssertionError("not refused")


def test_the_compiler_of_torch_is_not_imported():
    """By none of the tests above. It takes seconds, for which a candidate waits."""
    assert "torch._dynamo" not in sys.modules


for name, test in list(globals().items()):
    if name.startswith("test_"):
        test()
print("weights of candidates: passed")
