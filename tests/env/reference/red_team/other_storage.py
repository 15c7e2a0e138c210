# Gives an input the memory of another tensor.
def forward(x):
    y = torch.zeros_like(x)
    y.set_(x)
    return torch.relu(x)
