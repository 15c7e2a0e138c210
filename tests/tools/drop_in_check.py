"""Uses the drop-in that `kevin optimize optimize_modules/first.py -o NAME.py` wrote: drop_in_check.py NAME, in its folder."""

import copy
import importlib
import io
import sys
import threading
import warnings

import torch

sys.path.insert(0, ".")
exported = importlib.import_module(sys.argv[1])
torch.manual_seed(1)
original, fast = exported.Original(256).eval(), exported.Block(256).eval()
with torch.no_grad():
    for parameter in original.parameters():
        parameter.uniform_(-1, 1)
assert list(fast.state_dict()) == list(original.state_dict())
fast.load_state_dict(original.state_dict())
assert isinstance(fast, exported.Original) and "Block" in type(fast).__name__
x = torch.randn(64, 96, 256)


def close(ours, theirs, tolerance=1e-5):
    assert list(ours) == list(theirs), (list(ours), list(theirs))
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], rtol=tolerance, atol=tolerance)


def runs_kernel(call):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return call()


def falls_back(words, call):
    """The original runs, with one warning on the first such call."""
    exported._warned.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
        result = call()
    said = [str(w.message) for w in caught if "the original runs" in str(w.message)]
    assert len(said) == 1 and words in said[0], (words, said)
    assert caught[0].filename == __file__, caught[0].filename
    return result


with torch.no_grad():
    close(runs_kernel(lambda: fast(x)), original(x))
    close(runs_kernel(lambda: fast(x=x)), original(x))
    close(runs_kernel(lambda: fast(x, 2.0)), original(x))
    close(runs_kernel(lambda: copy.deepcopy(fast)(x)), original(x))
    saved = io.BytesIO()
    torch.save(fast, saved)
    saved.seek(0)
    close(runs_kernel(lambda: torch.load(saved, weights_only=False)(x)), original(x))
    # Each way to the original.
    close(falls_back("other shapes", lambda: fast(x[:3])), original(x[:3]))
    close(falls_back("float64", lambda: copy.deepcopy(fast).double()(x.double())),
          copy.deepcopy(original).double()(x.double()))
    strided = torch.randn(96, 64, 256).transpose(0, 1)
    close(falls_back("not contiguous", lambda: fast(strided)), original(strided))
    close(falls_back("`factor`", lambda: fast(x, factor=3.0)), original(x, factor=3.0))
    with torch.autocast("cpu", torch.bfloat16):
        falls_back("autocast", lambda: fast(x))
    falls_back("training mode", lambda: copy.deepcopy(fast).train()(x))
    changed = copy.deepcopy(fast)
    changed.scale = torch.nn.Parameter(torch.ones(256, dtype=torch.float64))
    falls_back("its `scale` has the dtype torch.float64, not torch.float32", lambda: changed(x))
    changed = copy.deepcopy(fast)
    changed.table.mul_(2)
    changed._kevin_check()
    close(falls_back("the values of table", lambda: changed(x)), exported.Original.forward(changed, x))
    other = exported.Block(256, eps=1e-2).eval()
    falls_back("eps = 0.01 (the kernel was made for 1e-06)", lambda: other(x))
falls_back("gradients", lambda: fast(x))
leaf = x.clone().requires_grad_()
gradient = [torch.autograd.grad(m(leaf)["gated"].sum(), [leaf, *m.parameters()], allow_unused=True) for m in (fast, original)]
for ours, theirs in zip(*gradient):
    assert (ours is None and theirs is None) or torch.equal(ours, theirs)

with torch.no_grad():
    compiled = torch.compile(fast, fullgraph=True, backend="aot_eager")
    close(compiled(x), original(x))
    graph = torch.export.export(fast, (x,))
    assert any(exported.NAMESPACE in str(node.target) for node in graph.graph.nodes), graph
    close(graph.module()(x), original(x))
    # Others in a compiled graph: the original, without a break.
    short = x[:3].contiguous()
    close(torch.compile(fast, fullgraph=True, backend="aot_eager", dynamic=False)(short), original(short))

    # A model built from the user's own class.
    model = torch.nn.Sequential(exported.Original(256), torch.nn.Identity()).eval()
    model[0].load_state_dict(original.state_dict())
    assert exported.use_in(model) == 1
    close(runs_kernel(lambda: model(x)), original(x))

    # Many threads at once.
    expected, wrong = original(x), []

    def work():
        with torch.no_grad():
            for _ in range(20):
                if not torch.allclose(fast(x)["gated"], expected["gated"], atol=1e-4):
                    wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
print("the drop-in is one")
