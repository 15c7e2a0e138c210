# A comment that another reader takes for code:     raise Exception
def forward(x):
    return torch.relu(x)
