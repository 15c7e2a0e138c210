# Prints through the warnings of libtorch.
def forward(x):
    torch.warn('owned')
    return torch.relu(x)
