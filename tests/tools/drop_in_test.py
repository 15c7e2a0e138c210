"""What a drop-in does beside its kernel: when the original runs in its place, and that copies, pickles and further imports of
it work. The kernel is PyTorch itself (stand_in.py)."""

import copy
import enum
import importlib
import importlib.util
import inspect
import io
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import warnings

if importlib.util.find_spec("torch") is None:
    print("skipped: this Python has no torch")
    sys.exit(77)
import torch

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import stand_in

BLOCK = '''
"""Of the file."""
import types
import torch
from torch import nn


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = 2.0
        self.limits = [0.5, 8.0]

    def forward(self, x):
        return torch.sigmoid(x) * self.factor + self.limits[0]


class Block(nn.Module):
    """A norm, a gate and a table."""

    def __init__(self, dim=16, eps=1e-5):
        super().__init__()
        self.norm = nn.LayerNorm(dim, eps=eps, bias=False)
        self.stack = nn.Sequential(nn.Linear(dim, dim), Gate())
        self.config = types.SimpleNamespace(power=2, names={"shift": 0.25})
        self.register_buffer("table", torch.arange(dim).float().cos())

    def forward(self, x, scale=1.0):
        y = self.stack(self.norm(x)) * self.table * scale
        return y.abs() ** self.config.power + self.config.names["shift"]


def get_inputs():
    return [torch.randn(4, 16)]
'''
VALUES = '''
import torch


class Model(torch.nn.Module):
    def forward(self, x, fill, keep, spread=1.0):
        return torch.tanh(x).masked_fill(x > keep, fill) * spread


def get_inputs():
    return [torch.randn(4, 16), float("-inf"), float("nan"), 0.0]
'''
FUNCTION = '''
import torch


def {name}(x, weight):
    """Of a function."""
    return torch.tanh(x) * weight


def get_inputs():
    return [torch.randn(4, 16), torch.randn(16)]
'''
CLASS = '''
import torch


class {name}(torch.nn.Module):
    def forward(self, x, list, lambda_):
        return torch.tanh(x) * list + lambda_


def get_inputs():
    return [torch.randn(4, 16), torch.randn(16), torch.randn(16)]
'''
NEIGHBOUR = '''
import torch
import neighbour


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x) * neighbour.factor


def get_inputs():
    return [torch.randn(4, 16)]
'''
PACKAGE = NEIGHBOUR.replace("import neighbour", "from . import neighbour")
FILES = {"block.py": BLOCK, "values.py": VALUES, "my-module.py": FUNCTION.format(name="run"), "reference.py": FUNCTION.format(name="reference"),
         "class.py": CLASS.format(name="type"), "original.py": CLASS.format(name="Original"), "beside/near.py": NEIGHBOUR,
         "beside/neighbour.py": "factor = 3.0\n", "package/net.py": PACKAGE, "package/neighbour.py": "factor = 3.0\n"}
X = torch.randn(4, 16)
work = tempfile.mkdtemp()


def make():
    """The drop-in of each file, as fast_NAME.py in `work`."""
    for name, text in FILES.items():
        os.makedirs(os.path.dirname(os.path.join(work, name)), exist_ok=True)
        with open(os.path.join(work, name), "w", encoding="utf-8") as file:
            file.write(text)
    files = [name for name in FILES if not name.endswith("neighbour.py")]
    classes = {"my-module.py": "run", "block.py": "Block", "reference.py": "reference"}
    answers = stand_in.described([{"file": os.path.join(work, name), "any_class": True, "class": classes.get(name, "")}
                                  for name in files])
    for number, (name, answer) in enumerate(zip(files, answers)):
        assert "error" not in answer, (name, answer)
        stem = os.path.basename(name).removesuffix(".py").replace("-", "_")
        stand_in.write(answer, os.path.join(work, f"fast_{stem}.py"), f"kevin_drop_in_test_{number}")
    sys.path.insert(0, work)


def calls(exported):
    return len(getattr(torch.ops, exported.NAMESPACE).kevin_libraries[1])


def ran(exported, call):
    """(whether the kernel ran, what was said)."""
    before = calls(exported)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return calls(exported) > before, [str(w.message) for w in caught if "the original runs" in str(w.message)]


def runs_kernel(exported, call):
    found = ran(exported, call)
    assert found == (True, []), found


def falls_back(words, exported, call):
    """The original runs, with one warning on the first such call."""
    was_run, said = ran(exported, call)
    assert not was_run and len(said) == 1 and words in said[0], (words, was_run, said)
    assert ran(exported, call) == (False, []), words


def fresh(exported, **arguments):
    return exported.Block(**arguments).eval()


def check_transforms(fast):
    """Each transform and each kind of gradient has its own warning, and the original's results."""
    block = fresh(fast)

    def plain(x):
        return fast.Original.forward(block, x)

    with torch.no_grad():
        runs_kernel(fast, lambda: block(X))
        falls_back("torch.func's vmap", fast, lambda: torch.func.vmap(block)(X[None].expand(3, -1, -1).contiguous()))
        falls_back("torch.func's jvp", fast, lambda: torch.func.jvp(block, (X,), (X,)))
        ours, theirs = torch.func.jvp(block, (X,), (X,)), torch.func.jvp(plain, (X,), (X,))
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs))
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(X, torch.ones_like(X))
            falls_back("tangent", fast, lambda: block(dual))
            tangent = torch.autograd.forward_ad.unpack_dual(block(dual)).tangent
        assert torch.equal(tangent, torch.func.jvp(plain, (X,), (torch.ones_like(X),))[1])
    for parameter in block.parameters():
        parameter.requires_grad_(False)
    falls_back("torch.func's grad", fast, lambda: torch.func.grad(lambda x: block(x).sum())(X))
    assert torch.equal(torch.func.grad(lambda x: block(x).sum())(X), torch.func.grad(lambda x: plain(x).sum())(X))
    leaf = X.clone().requires_grad_()
    falls_back("gradients are needed", fast, lambda: block(leaf))
    with torch.no_grad():  # other parameters in its place: the kernel takes them
        others = {name: torch.randn_like(value) for name, value in block.named_parameters()}
        ours = torch.func.functional_call(block, others, (X,))
        runs_kernel(fast, lambda: torch.func.functional_call(block, others, (X,)))
        theirs = fast.Original().eval()
        theirs.load_state_dict({**block.state_dict(), **others})
        torch.testing.assert_close(ours, theirs(X))
        assert not torch.allclose(ours, block(X))


def check_reasons(fast):
    """One warning for each reason, not for each kind and not for each call."""
    block, wide, halved = fresh(fast), torch.randn(16, 4), changed(fast, lambda m: m.stack[0].double())
    tripled = changed(fast, lambda m: setattr(m.stack[1], "factor", 3.0))
    fast._warned.clear()
    with torch.no_grad():
        falls_back("other shapes: `x` is (2, 16), not (4, 16)", fast, lambda: block(X[:2]))
        assert ran(fast, lambda: block(X[:3])) == (False, [])
        falls_back("not torch.float64", fast, lambda: copy.deepcopy(block).double()(X.double()))
        falls_back("`x` is not contiguous: strides (1, 4)", fast, lambda: block(wide.t()))
        falls_back("`scale` is given", fast, lambda: block(X, scale=2.0))
        falls_back("`x` is a Parameter2", fast, lambda: block(X.as_subclass(type("Parameter2", (torch.Tensor,), {}))))
        falls_back("torch.sparse_coo", fast, lambda: raises(lambda: block(X.to_sparse())))
        falls_back("training mode", fast, lambda: fresh(fast).train()(X))
        falls_back("its `stack.0.weight` has the dtype torch.float64", fast, lambda: raises(lambda: halved(X)))
        falls_back("differs in norm.eps = 0.1", fast, lambda: fresh(fast, eps=0.1)(X))
        falls_back("differs in stack.1.factor = 3.0", fast, lambda: tripled(X))
    values = importlib.import_module("fast_values")
    model = values.Model().eval()
    given = [X, float("-inf"), float("nan"), 0.0]
    with torch.no_grad():
        runs_kernel(values, lambda: model(*given))
        torch.testing.assert_close(model(*given), values.Original.forward(model, *given), equal_nan=True)
        falls_back("`fill` is not -inf", values, lambda: model(X, float("inf"), *given[2:]))
        falls_back("`keep` is not nan", values, lambda: model(X, given[1], 0.0, given[3]))
        falls_back("`spread` is not 0.0", values, lambda: model(*given[:3], -0.0))


def raises(call):
    try:
        call()
    except RuntimeError:
        pass


def changed(fast, change):
    """A module that changes after its first call."""
    block = fresh(fast)
    with torch.no_grad():
        runs_kernel(fast, lambda: block(X))
    change(block)
    return block


class Kind(enum.Enum):
    A, B = 1, 2


def check_changes(fast):
    """What changes inside a module after it was made is noticed at the next call."""
    theirs = fast.Original().eval()

    def linear(module):
        module.stack[0] = torch.nn.Identity()

    def shift(module):
        module.config.names["shift"] = 4.0

    def hook(module):
        module.norm.register_forward_hook(lambda *_: torch.zeros(4, 16))

    def limits(module):
        module.stack[1].limits[0] = 3.0

    changes = {"part stack.0": linear, "the hook of part norm": hook, "stack.1.limits": limits, "config": shift,
               "power": lambda m: setattr(m.config, "power", 3), "norm.eps = 0.5": lambda m: setattr(m.norm, "eps", 0.5),
               "the forward of part norm": lambda m: setattr(m.norm, "forward", lambda x: x + 1),
               "parameter norm.bias": lambda m: setattr(m.norm, "bias", torch.nn.Parameter(torch.ones(16))),
               "part norm, which is in training mode": lambda m: m.norm.train(),
               "the values of table": lambda m: m.table.add_(1), "part stack": lambda m: m._modules.pop("stack") and None,
               "norm.eps, which it has no longer": lambda m: delattr(m.norm, "eps")}
    with torch.no_grad():
        for words, change in changes.items():
            block = changed(fast, change)
            fast._warned.clear()
            try:
                wanted = fast.Original.forward(block, X)
            except AttributeError:
                continue_with = lambda: raises_attribute(lambda: block(X))  # noqa: E731
            else:
                continue_with = lambda: torch.testing.assert_close(block(X), wanted)  # noqa: E731
            falls_back("config" if words == "power" else words, fast, continue_with)
        weight = torch.nn.Parameter(torch.randn(16, 16))  # a parameter of a part that is replaced: the kernel takes it
        block = changed(fast, lambda m: setattr(m.stack[0], "weight", weight))
        runs_kernel(fast, lambda: block(X))
        theirs.load_state_dict(block.state_dict())
        torch.testing.assert_close(block(X), theirs(X))

        class Derived(fast.Block):
            pass

        falls_back("derived from the drop-in", fast, lambda: Derived().eval()(X))
        handle = torch.nn.modules.module.register_module_forward_hook(lambda *_: None)
        falls_back("a hook of all modules", fast, lambda: block(X))
        handle.remove()
        runs_kernel(fast, lambda: block(X))
    described = fast._described
    assert described(Kind.A) != described(Kind.B) and described(lambda x: x) != described(
        lambda x: x + 1)
    assert described({"a": [(1, 2)]}) != described({"a": [(1, 3)]}) and described(torch.Generator()) is None


def raises_attribute(call):
    try:
        call()
    except AttributeError:
        pass


def check_compiled(fast):
    """torch.compile guards the parts too, but for hooks, which it expects before it compiles."""
    with torch.no_grad():
        block = fresh(fast)
        compiled = torch.compile(block, fullgraph=True, backend="eager")
        runs_kernel(fast, lambda: compiled(X))
        changes = (lambda m: setattr(m.stack[1], "factor", 5.0), lambda m: m.stack.__setitem__(0, torch.nn.Identity()),
                   lambda m: setattr(m.config, "power", 3), lambda m: m.config.names.update(shift=4.0),
                   lambda m: m.stack[1].limits.__setitem__(0, 3.0), lambda m: m.norm.train())
        for number, change in enumerate(changes):
            torch._dynamo.reset()
            block = fresh(fast)
            compiled = torch.compile(block, fullgraph=True, backend="eager")
            runs_kernel(fast, lambda: compiled(X))
            change(block)
            wanted = fast.Original.forward(block, X)
            was_run, _ = ran(fast, lambda: torch.testing.assert_close(compiled(X), wanted))
            assert not was_run, number
        torch._dynamo.reset()
        block, many = fresh(fast), torch.stack([X, 2 * X])
        wanted = torch.func.vmap(lambda x: fast.Original.forward(block, x))(many)
        compiled = torch.compile(lambda x: torch.func.vmap(lambda y: block(y))(x), fullgraph=True, backend="eager")
        was_run, _ = ran(fast, lambda: torch.testing.assert_close(compiled(many), wanted))
        assert not was_run
    torch._dynamo.reset()


def check_copies(fast):
    """Copies, pickles, a second import, one under another name, a reload: in one process, all work."""
    block = fresh(fast)
    saved = io.BytesIO()
    torch.save(block, saved)
    saved.seek(0)
    with torch.no_grad():
        for other in (copy.deepcopy(block), copy.copy(block), pickle.loads(pickle.dumps(block)), torch.load(saved, weights_only=False)):
            assert type(other) is fast.Block
            runs_kernel(fast, lambda: torch.testing.assert_close(other(X), block(X)))
        other = copy.deepcopy(block)
        other.norm.eps = 0.5
        falls_back("norm.eps = 0.5", fast, lambda: other(X))
        falls_back("norm.eps", importlib.reload(fast), lambda: copy.deepcopy(other)(X))
        runs_kernel(fast, lambda: fresh(fast)(X))
        runs_kernel(fast, lambda: block(X))  # made before the reload
        shutil.copy(os.path.join(work, "fast_block.py"), os.path.join(work, "renamed.py"))
        renamed = importlib.import_module("renamed")
        runs_kernel(renamed, lambda: fresh(renamed)(X))
        assert renamed.Original is fast.Original and renamed.Block is not fast.Block
        del sys.modules["fast_block"]
        again = importlib.import_module("fast_block")
        runs_kernel(again, lambda: fresh(again)(X))
        sys.modules["fast_block"] = fast
        with open(os.path.join(work, "saved.pkl"), "wb") as file:
            pickle.dump(fresh(fast), file)
    program = "import pickle, torch; m = pickle.load(open('saved.pkl', 'rb')); print(type(m), torch.is_tensor(m(torch.randn(4, 16))))"
    done = subprocess.run([sys.executable, "-c", program], cwd=work, env={**os.environ, "PYTHONPATH": work}, capture_output=True, text=True)
    assert done.stdout.startswith("<class 'fast_block.Block'> True"), done


def check_names(fast):
    """Signatures, documents and names of the original; names that Python or the file itself uses."""
    assert inspect.signature(fast.Block) == inspect.signature(fast.Original), inspect.signature(fast.Block)
    assert inspect.signature(fast.Block.forward) == inspect.signature(fast.Original.forward)
    assert fast.Block.__doc__ == "A norm, a gate and a table." and fast.Block.__name__ == fast.Block.__qualname__ == "Block"
    assert fast.Block.__module__ == "fast_block" and fast.Block.forward.__doc__ == fast.Original.forward.__doc__
    with torch.no_grad():
        for name, attribute in (("fast_my_module", "run"), ("fast_reference", "reference")):
            exported, weight = importlib.import_module(name), torch.randn(16)
            function = getattr(exported, attribute)
            assert function.__doc__ == "Of a function." and function.__module__ == name and function.__qualname__ == attribute
            assert list(inspect.signature(function).parameters) == ["x", "weight"]
            assert pickle.loads(pickle.dumps(function)) is function
            runs_kernel(exported, lambda: torch.testing.assert_close(function(X, weight), torch.tanh(X) * weight))
            with torch.enable_grad():
                leaf = X.clone().requires_grad_()
                falls_back("gradients are needed", exported, lambda: function(leaf, weight))
                getattr(torch.ops, exported.NAMESPACE).run(leaf, weight).sum().backward()
                assert leaf.grad is not None
        for name, attribute in (("fast_class", "type"), ("fast_original", "Original")):
            exported, given = importlib.import_module(name), [X, torch.randn(16), torch.randn(16)]
            made = getattr(exported, attribute)
            assert pickle.loads(pickle.dumps(made)) is made
            module = made().eval()
            runs_kernel(exported, lambda: torch.testing.assert_close(module(*given), torch.tanh(X) * given[1] + given[2]))
            falls_back("other shapes", exported, lambda: module(X[:2], *given[1:]))


def check_missing(fast):
    """A module that the original imports, and that is not there, is named; with it, the drop-in works."""
    for name, missing, folder in (("fast_near", "neighbour", os.path.join(work, "beside")), ("fast_net", "package", work)):
        apart = os.path.join(work, "apart", name)
        shutil.copytree(os.path.join(work, f"{name}_kernel"), os.path.join(apart, f"{name}_kernel"))
        shutil.copy(os.path.join(work, f"{name}.py"), apart)
        program = f"import torch, {name} as e; x = torch.ones(4, 16); print(torch.equal(e.Model()(x), x.tanh() * 3), e.Original.__module__)"
        for path, words in ((None, f"ImportError: Model: the original imports `{missing}`, which Python does not find"), (folder, "True ")):
            done = subprocess.run([sys.executable, "-c", program], cwd=apart, env={**os.environ, "PYTHONPATH": path or ""},
                                  capture_output=True, text=True)
            assert words in done.stdout + done.stderr, (name, path, done)
            assert path is not None or "PYTHONPATH" in done.stderr


if __name__ == "__main__":
    try:
        make()
        fast = importlib.import_module("fast_block")
        asked = sys.argv[1:]
        for name, check in list(globals().items()):
            if name.startswith("check_") and (not asked or name.removeprefix("check_") in asked):
                fast._warned.clear()
                print(name, flush=True)
                check(fast)
        print("passed")
    finally:
        shutil.rmtree(work, ignore_errors=True)
