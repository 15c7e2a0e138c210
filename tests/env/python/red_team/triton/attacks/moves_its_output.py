# Puts the answer into memory of its own and makes that the output.
import torch


def launch(x, out):
    other = torch.empty_like(out)
    run(x, other)
    out.data = other
