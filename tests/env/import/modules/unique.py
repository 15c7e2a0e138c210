# REFUSED: depends on the values of a tensor: torch.unique2 (unique.py, line 7: return x * torch.unique(x).sum())
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x * torch.unique(x).sum()


def get_inputs():
    return [torch.randn(8, 8)]
