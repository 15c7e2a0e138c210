# At nearly every moment all of its threads wait.
import threading

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        threading.Event().wait(0.1)
        return torch.relu(x)
