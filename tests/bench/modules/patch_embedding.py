import torch
from torch import nn


class PatchEmbedding(nn.Module):
    """Pictures to a sequence of patches, with a class token and positions, as in ViT."""

    def __init__(self, patch, size, dim):
        super().__init__()
        self.projection = nn.Conv2d(3, dim, patch, stride=patch)
        self.token = nn.Parameter(torch.randn(1, 1, dim) * 0.02)
        self.position = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, dim) * 0.02)

    def forward(self, pictures):
        patches = self.projection(pictures).flatten(2).transpose(1, 2)
        return torch.cat([self.token.expand(patches.shape[0], -1, -1), patches], 1) + self.position


def get_inputs():
    return [torch.randn(4, 3, 224, 224)]


def get_init_inputs():
    return [16, 224, 192]
