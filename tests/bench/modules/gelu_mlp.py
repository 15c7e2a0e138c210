import torch
from torch import nn


class MLP(nn.Module):
    """The MLP of GPT-2 and of vision transformers."""

    def __init__(self, dim, hidden):
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.act = nn.GELU(approximate="tanh")
        self.drop = nn.Dropout(0.1)
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, x):
        return self.drop(self.fc2(self.drop(self.act(self.fc1(x)))))


def get_inputs():
    return [torch.randn(2, 64, 384)]


def get_init_inputs():
    return [384, 1536]
