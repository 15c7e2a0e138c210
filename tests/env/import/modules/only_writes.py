# HAS: torch.add_(residual, sigmoid)
# HAS: ^name = "residual"
# HAS: ^role = "inout"
# HAS: ^min_bytes = "0"
import torch


class Model(torch.nn.Module):
    """Does its work in its second argument and returns nothing."""

    def forward(self, x, residual):
        residual.add_(torch.sigmoid(x))


def get_inputs():
    return [torch.randn(512, 256), torch.randn(512, 256)]
