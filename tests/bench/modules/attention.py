import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    """Causal self-attention of GPT-2."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        batch, length, dim = x.shape
        q, k, v = (t.view(batch, length, self.heads, dim // self.heads).transpose(1, 2)
                   for t in self.qkv(x).split(dim, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(batch, length, dim))


def get_inputs():
    return [torch.randn(2, 128, 256)]


def get_init_inputs():
    return [256, 8]
