import torch


value = undefined_name


class Model(torch.nn.Module):
    def forward(self, x):
        return x
