# REFUSED: forward writes into its own state `seen` (torch.add_)
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(8))

    def forward(self, x):
        self.seen.add_(x.sum(0))
        return x - self.seen


def get_inputs():
    return [torch.randn(8, 8)]
