# HAS: def forward(lambda_, list, type, min, input)
import torch


class Model(torch.nn.Module):
    """Names that are words or functions of Python, C++ or TorchScript."""

    def forward(self, lambda_, list, type, min, input):
        return torch.sigmoid(lambda_) * list.sum(0) + type.amax(1, keepdim=True) - min * input[:4].reshape(2, 2).mean()


def get_inputs():
    return [torch.randn(8, 8) for _ in range(4)] + [torch.randn(16)]
