# REFUSED: input `mode` is a str
import torch


class Model(torch.nn.Module):
    def forward(self, x, mode):
        return x if mode == "same" else -x


def get_inputs():
    return [torch.randn(8, 8), "same"]
