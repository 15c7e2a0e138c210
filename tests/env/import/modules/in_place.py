# REFUSED: its output `out` is a view of its input `x`
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x.view(-1).relu_().view(8, 8)


def get_inputs():
    return [torch.randn(8, 8)]
