import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x.view(-1), x * 2


def get_inputs():
    return [torch.randn(8, 8)]
