# HAS: ^name = "running_var"
# HAS: ^distribution = "positive"
# HAS: ^offset = 0.5
import torch
import torch.nn.functional as F


class Model(torch.nn.Module):
    """A norm by stored statistics, as a network in evaluation mode has it."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(8, 16, 3, bias=False)
        self.register_buffer("running_mean", torch.zeros(16))
        self.register_buffer("running_var", torch.ones(16))

    def forward(self, x):
        return F.silu(F.batch_norm(self.conv(x), self.running_mean, self.running_var))


def get_inputs():
    return [torch.randn(2, 8, 14, 14)]
