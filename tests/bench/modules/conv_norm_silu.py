import torch
from torch import nn


class ConvBlock(nn.Module):
    """A convolution with batch norm and SiLU, as in EfficientNet and YOLO."""

    def __init__(self, channels, out):
        super().__init__()
        self.conv = nn.Conv2d(channels, out, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(out)
        self.act = nn.SiLU()

    def forward(self, x):
        return self.act(self.bn(self.conv(x)))


def get_inputs():
    return [torch.randn(4, 32, 56, 56)]


def get_init_inputs():
    return [32, 64]
