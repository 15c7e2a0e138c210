# HAS: torch.index_copy_(cache, 1, position, linear)
# HAS: ^name = "cache"
# HAS: ^role = "inout"
# HAS: ^name = "out"
import torch
import torch.nn as nn


class Model(nn.Module):
    """A cache that is returned, and a state in a dictionary that is not."""

    def __init__(self):
        super().__init__()
        self.key = nn.Linear(32, 32)

    def forward(self, x, cache, position, state):
        cache.index_copy_(1, position, self.key(x))
        state["sum"].mul_(0.5).add_(x.sum(1))
        return torch.softmax(0.1 * x @ cache.transpose(1, 2), -1) @ cache, cache


def get_inputs():
    return [torch.randn(2, 1, 32), torch.randn(2, 64, 32), torch.tensor([5]), {"sum": torch.zeros(2, 32)}]
