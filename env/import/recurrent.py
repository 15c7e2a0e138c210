"""Shapes of torch's recurrent layers. Its own way to find them runs every step of the sequence, which takes minutes and
fixes the sequence's length."""

import torch
from torch._C import DispatchKey


def check_shapes(x, states, weights, batch_first):
    torch._check(x.shape[-1] == weights[0].shape[1])
    torch._check(weights[1].shape[-1] == states[0].shape[-1])
    for state in states:
        torch._check(state.dim() == x.dim())
        if x.dim() == 3:
            torch._check(state.shape[1] == x.shape[0 if batch_first else 1])


def result(x, states, weights, bidirectional, batch_first):
    check_shapes(x, states, weights, batch_first)
    width = states[0].shape[-1] * (2 if bidirectional else 1)
    return (x.new_empty([*x.shape[:-1], width]), *(state.new_empty(state.shape) for state in states))


def lstm(x, states, weights, has_biases, layers, dropout, train, bidirectional, batch_first):
    return result(x, states, weights, bidirectional, batch_first)


def one_state(x, state, weights, has_biases, layers, dropout, train, bidirectional, batch_first):
    return result(x, [state], weights, bidirectional, batch_first)


def use():
    """Wherever torch's Python dispatcher is on; tensors with values are computed as before."""
    for name, shapes in (("lstm", lstm), ("gru", one_state), ("rnn_tanh", one_state), ("rnn_relu", one_state)):
        operator = getattr(torch.ops.aten, name).input
        for key in (DispatchKey.CompositeImplicitAutograd, DispatchKey.Autograd):
            operator.py_kernels[key] = shapes
        operator._dispatch_cache.clear()
