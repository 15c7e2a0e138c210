# Pictures of one size only: the small set has fewer of them.
# HAS: ^batch = 128
import torch

batch = 512


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = torch.nn.Conv2d(3, 16, 3)
        self.head = torch.nn.Linear(16 * 62 * 62, 10)

    def forward(self, x):
        return self.head(torch.relu(self.convolution(x)).flatten(1))


def get_inputs():
    return [torch.rand(batch, 3, 64, 64)]
