"""Uses drop-ins for modules as they are deployed, with the modules of tests/env/import/modules: deployed_check.py MODULE NAME,
in the folder of NAME.py."""

import copy
import importlib
import sys
import warnings

import torch

sys.path.insert(0, ".")
name = sys.argv[1]
exported = importlib.import_module(sys.argv[2])
torch.manual_seed(1)
original = exported.Original().eval()
fast = exported.Model().eval()
fast.load_state_dict(original.state_dict())
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3, torch.bool: 0, torch.int64: 0}


def close(ours, theirs):
    from torch.utils._pytree import tree_flatten
    ours, theirs = tree_flatten(ours), tree_flatten(theirs)
    assert str(ours[1]) == str(theirs[1]), (ours[1], theirs[1])
    for one, other in zip(ours[0], theirs[0]):
        torch.testing.assert_close(one, other, rtol=TOLERANCE[other.dtype], atol=TOLERANCE[other.dtype])


def kernel(*arguments):
    """The kernel ran: no warning says that the original did."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error")
        return fast(*arguments)


def falls_back(words, *arguments):
    exported._warned.clear()
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("always")
        result = fast(*arguments)
    said = [str(w.message) for w in caught if "the original runs" in str(w.message)]
    assert len(said) == 1 and words in said[0], (words, said)
    return result


def expected(*arguments):
    with torch.no_grad():
        return original(*arguments)


def check_cache():
    """The kernel writes into the caller's tensors, without a copy, and the cache that is returned is the caller's."""
    x, position = torch.randn(2, 1, 32), torch.tensor([17])
    cache, total = torch.randn(2, 64, 32), torch.randn(2, 32)
    theirs, ours = [cache.clone(), {"sum": total.clone()}], [cache.clone(), {"sum": total.clone()}]
    wanted = expected(x, theirs[0], position, theirs[1])
    found = kernel(x, ours[0], position, ours[1])
    close(found, wanted)
    close(ours, theirs)
    assert found[1] is ours[0] and not torch.equal(ours[0], cache) and not torch.equal(ours[1]["sum"], total)
    compiled = torch.compile(fast, fullgraph=True, backend="aot_eager")
    ours = [cache.clone(), {"sum": total.clone()}]
    with torch.no_grad():
        close(compiled(x, ours[0], position, ours[1]), wanted)
    close(ours, theirs)
    ours = [cache.clone(), {"sum": total.clone()}]
    close(falls_back("other shapes", x[:1], ours[0][:1], position, {"sum": ours[1]["sum"][:1]})[0], wanted[0][:1])
    written = [a.name for a in exported._FORWARD._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    assert written == [exported.NAMES[i] for i in exported.INOUTS] and len(written) == 2, written
    assert len(exported._FORWARD._schema.returns) == 1, exported._FORWARD._schema
    # autograd sees that a tensor has changed.
    ours, versions = [cache.clone(), {"sum": total.clone()}], (cache.clone()._version, total.clone()._version)
    kernel(x, ours[0], position, ours[1])
    assert ours[0]._version > versions[0] and ours[1]["sum"]._version > versions[1]
    # At an odd address it is written too; arguments in one memory go to the original.
    odd = torch.empty(cache.numel() + 1)[1:].view(cache.shape).copy_(cache)
    ours = [odd, {"sum": total.clone()}]
    close(kernel(x, ours[0], position, ours[1]), wanted)
    close(ours, theirs)
    shared = cache.clone()
    falls_back("shares memory", shared[:, :1].contiguous(), shared, position, {"sum": shared.view(-1)[:64].view(2, 32)})
    try:
        with torch.no_grad():
            exported.run(x, shared, position, shared.view(-1)[:64].view(2, 32), *exported._states_of(fast))
        raise AssertionError("it takes arguments that share memory")
    except RuntimeError as error:
        assert "shares memory with" in str(error), error
    # Gradients are the original's.
    leaf = x.clone().requires_grad_()
    exported._warned.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fast(leaf, cache.clone(), position, {"sum": total.clone()})[0].sum().backward()
    assert leaf.grad is not None and any("gradients" in str(w.message) for w in caught)


def check_only_writes():
    """A forward that returns nothing."""
    x, residual = torch.randn(512, 256), torch.randn(512, 256)
    theirs, ours = residual.clone(), residual.clone()
    assert expected(x, theirs) is None and kernel(x, ours) is None
    close(ours, theirs)
    ours = residual.clone()
    with torch.no_grad():
        assert torch.compile(fast, fullgraph=True, backend="aot_eager")(x, ours) is None
    close(ours, theirs)


def check_chunks():
    """Parts of one tensor, an expanded mask, a dictionary; other strides go to the original."""
    qkv = torch.randn(2, 16, 192)
    cache = {"k": torch.randn(2, 4, 8, 16), "v": torch.randn(2, 4, 8, 16)}
    mask = torch.rand(2, 1, 16, 24) > 0.3
    wide = mask.expand(2, 4, 16, 24)
    wanted = expected(qkv.chunk(3, -1), cache, wide)
    close(kernel(qkv.chunk(3, -1), cache, wide), wanted)
    close(kernel(list(qkv.chunk(3, -1)), {"v": cache["v"], "k": cache["k"]}, wide), wanted)
    close(falls_back("other strides", qkv.chunk(3, -1), cache, wide.contiguous()), wanted)
    close(falls_back("other strides", [x.contiguous() for x in qkv.chunk(3, -1)], cache, wide), wanted)
    assert "has not the keys k, v" in refusal(qkv.chunk(3, -1), {"k": cache["k"]}, wide)
    assert "not of 3 parts" in refusal(qkv.chunk(3, -1)[:2], cache, wide)


def refusal(*arguments):
    """The reason why the kernel does not take them; the original may not take them either."""
    return exported._bound((fast,), arguments, {})[2][1]


def check_bfloat16():
    x = torch.randn(4, 16, 64).bfloat16()
    close(kernel(x), expected(x))
    assert kernel(x).dtype == torch.bfloat16
    assert fast.weight.dtype == torch.bfloat16
    close(falls_back("torch.bfloat16, not torch.float32", x.float()), expected(x.float()))
    torch.library.opcheck(getattr(torch.ops, exported.NAMESPACE).run.default, (x, fast.weight.detach()))


def check_dynamic():
    """A kernel for each shape of the range; others go to the original."""
    lengths = sorted(inputs[0][1] for inputs, _ in exported.SHAPES)
    assert len(lengths) > 3 and lengths[0] == 2 and lengths[-1] == 200 and 32 in lengths, lengths
    for length in lengths:
        x = torch.randn(4, length)
        close(kernel(x), expected(x))
    other = next(n for n in range(2, 200) if n not in lengths)
    close(falls_back("other shapes", torch.ones(4, other)), expected(torch.ones(4, other)))
    copied = copy.deepcopy(fast)
    with torch.no_grad():
        close(torch.compile(copied, fullgraph=True, backend="aot_eager")(x), expected(x))


globals()[f"check_{name}"]()
