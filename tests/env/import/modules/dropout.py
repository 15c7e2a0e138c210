# REFUSED: torch.dropout with p = 0.2 in training mode
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = torch.nn.Dropout(0.2)

    def forward(self, x):
        return torch.softmax(self.drop(x), 1)


def get_inputs():
    return [torch.randn(64, 32)]
