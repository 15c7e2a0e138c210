"""Uses the operator of `kevin export --as torch-package -o NAME.py`: operator_check.py NAME, in its folder. Of a kernel for a
GPU also streams, CUDA graphs and devices. For operators in float32."""

import importlib
import sys

import torch

sys.path.insert(0, ".")
exported = importlib.import_module(sys.argv[1])
torch.manual_seed(2)
inputs = exported.example_inputs()
assert exported.shape_of(*inputs) == 0


def outputs(found):
    return list(found) if isinstance(found, (tuple, list)) else [found]


def close(ours, theirs):
    for one, other in zip(outputs(ours), outputs(theirs), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


if exported.DEVICE == "cuda":
    # The first call of all is captured; then others on a stream of their own.
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = exported.run(*inputs)
    others = exported.example_inputs()
    for into, other in zip(inputs, others):
        into.copy_(other)
    graph.replay()
    close(captured, exported.reference(*others))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        found = exported.run(*inputs)
    stream.synchronize()
    close(found, exported.reference(*inputs))
    with torch.cuda.device(torch.cuda.device_count() - 1):  # another GPU where there is one
        there = [t.cuda() for t in inputs]
        close(exported.run(*there), exported.reference(*there))
close(exported.run(*inputs), exported.reference(*inputs))
# A view that begins anywhere in memory is copied, not misread.
shifted = torch.empty(inputs[0].numel() + 1, device=exported.DEVICE)[1:].view(inputs[0].shape).copy_(inputs[0])
close(exported.run(shifted, *inputs[1:]), exported.reference(*inputs))
leaves = [t.clone().requires_grad_() if t.is_floating_point() else t for t in inputs]
wanted = [t for t in leaves if t.requires_grad]


def gradients(function):
    return torch.autograd.grad(sum(o.sin().sum() for o in outputs(function(*leaves))), wanted)


for ours, theirs in zip(gradients(exported.run), gradients(exported.reference)):
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)
compiled = torch.compile(exported.run, fullgraph=True, backend="aot_eager")
close(compiled(*inputs), exported.reference(*inputs))
for ours, theirs in zip(gradients(compiled), gradients(exported.reference)):
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)


class Whole(torch.nn.Module):
    def forward(self, *tensors):
        return exported.run(*tensors)


program = torch.export.export(Whole(), tuple(inputs))
close(program.module()(*inputs), exported.reference(*inputs))
operators = getattr(torch.ops, exported.NAMESPACE)
for operator, arguments in ((operators.run.default, leaves), (operators.forward.default, inputs)):
    results = torch.library.opcheck(operator, tuple(arguments))
    assert set(results.values()) == {"SUCCESS"}, results
for arguments, words in (([inputs[0][:1], *inputs[1:]], "this kernel was made for"),
                         ([inputs[0].double(), *inputs[1:]], "must have the dtype float32"),
                         ([inputs[0].transpose(0, 1).contiguous().transpose(0, 1), *inputs[1:]], "must be contiguous")):
    try:
        exported.run(*arguments)
        raise AssertionError(f"it takes what {words}")
    except RuntimeError as error:
        assert words in str(error), error
print("the operator is one")
