# Gives a tensor the memory of an input.
def forward(x):
    y = torch.zeros_like(x)
    return torch.relu(y.set_(x))
