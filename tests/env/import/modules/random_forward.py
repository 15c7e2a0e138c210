# REFUSED: its forward draws random numbers: torch.randn_like
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x + torch.randn_like(x)


def get_inputs():
    return [torch.randn(8, 8)]
