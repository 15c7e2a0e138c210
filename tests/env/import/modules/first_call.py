# REFUSED: what was traced of its forward gives other answers on other inputs
import torch


class Model(torch.nn.Module):
    scale = None

    def forward(self, x):
        if self.scale is None:
            self.scale = x.abs().max()
        return x / self.scale


def get_inputs():
    return [torch.randn(8, 8)]
