import torch


class Model(torch.nn.Module):
    def forward(self, x):
        while True:
            pass


def get_inputs():
    return [torch.randn(8, 8)]
