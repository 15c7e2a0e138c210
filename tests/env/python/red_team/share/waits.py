# At nearly every moment all of its threads wait.
import threading

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        threading.Event().wait(0.03)
        return torch.relu(x)
