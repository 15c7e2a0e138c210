# HAS: torch.lstm
# HAS: ^N1 = 12
# HAS: "recurrent"
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = torch.nn.LSTM(8, 16, num_layers=2, batch_first=True)

    def forward(self, x, h, c):
        y, _ = self.cell(x, (h, c))
        return y[:, -1]


def get_inputs():
    return [torch.randn(4, 12, 8), torch.randn(2, 4, 16), torch.randn(2, 4, 16)]
