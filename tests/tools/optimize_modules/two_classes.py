import torch


class First(torch.nn.Module):
    def forward(self, x):
        return x + 1


class Second(First):
    pass


def get_inputs():
    return [torch.randn(8, 8)]
