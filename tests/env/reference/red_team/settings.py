# Changes the random state of the process.
def forward(x):
    torch.manual_seed(1)
    return torch.relu(x)
