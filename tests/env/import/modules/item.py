# REFUSED: a number is read from a tensor: torch.item (item.py, line 7: return x * x.max().item())
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x * x.max().item()


def get_inputs():
    return [torch.randn(8, 8)]
