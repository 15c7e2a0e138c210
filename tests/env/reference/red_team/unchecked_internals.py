# An internal operator that leaves the check of its indices to its caller.
def forward(x):
    i = torch.ones([1, 1], dtype=4) * 1000000
    return torch.relu(x) + torch.sum(torch._sparse_coo_tensor_unsafe(i, torch.ones([1]), [2]).to_dense())
