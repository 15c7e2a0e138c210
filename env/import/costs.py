"""Costs of a graph: operations, the length of its sums; and its families."""

import sympy
import torch

from .sizes import numel, size
from .text import operator_name

VIEWS = {"view", "reshape", "permute", "transpose", "t", "unsqueeze", "squeeze", "expand", "flatten", "slice", "select",
         "split", "split_with_sizes", "chunk", "unbind", "sym_size", "detach", "contiguous", "clone", "to", "_to_copy",
         "dropout", "numpy_T", "movedim", "unflatten", "narrow", "alias", "expand_as", "view_as", "type_as", "getitem"}
PRODUCTS = {"mm", "matmul", "bmm", "addmm", "baddbmm", "mv", "dot", "linear"}
CONVOLUTIONS = {"conv1d", "conv2d", "conv3d"}
TRANSPOSED = {"conv_transpose1d", "conv_transpose2d", "conv_transpose3d"}
NORMS = {"batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm", "local_response_norm"}
SOFTMAXES = {"softmax", "log_softmax", "_softmax", "_log_softmax", "logsumexp"}
REDUCTIONS = {"sum", "mean", "max", "min", "amax", "amin", "prod", "norm", "linalg_vector_norm", "frobenius_norm", "var",
              "std", "argmax", "argmin", "mse_loss", "cross_entropy_loss", "kl_div", "smooth_l1_loss", "huber_loss",
              "triplet_margin_loss", "nll_loss", "l1_loss", "binary_cross_entropy", "cosine_similarity"}
SCANS = {"cumsum", "cumprod", "logcumsumexp", "cummax", "cummin"}
RECURRENT = {"lstm", "gru", "rnn_tanh", "rnn_relu"}
FAMILIES = [("matmul", PRODUCTS | {"einsum", "bilinear"}), ("conv", CONVOLUTIONS | TRANSPOSED), ("norm", NORMS),
            ("softmax", SOFTMAXES), ("reduction", REDUCTIONS), ("scan", SCANS), ("recurrent", RECURRENT),
            ("attention", {"scaled_dot_product_attention"})]
NETWORK = 20  # calls of a network, at least


def tensor(node):
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    if isinstance(value, (list, tuple)):
        value = next((one for one in value if isinstance(one, torch.Tensor)), None)
    return value if isinstance(value, torch.Tensor) else None


def operands(node):
    found = []
    for argument in node.args:
        for one in argument if isinstance(argument, (list, tuple)) else [argument]:
            if tensor(one) is not None:
                found.append(tensor(one))
    return found


def ratio(above, below):
    """above / below if it is an integer expression, else 1."""
    quotient = sympy.cancel(above / below)
    return quotient if sympy.denom(quotient) == 1 else sympy.Integer(1)


def contraction(node, given):
    """The number of products in one element of a matrix product."""
    if operator_name(node) == "linear":
        return size(given[1].shape[-1])
    first = given[1] if operator_name(node) in ("addmm", "baddbmm") else given[0]
    return size(first.shape[-1])


def einsum_operations(node, given):
    if "." in node.args[0] or "->" not in node.args[0]:
        return 2 * numel(tensor(node)), sympy.Integer(1)
    left, right = node.args[0].replace(" ", "").split("->")
    extents = {}
    for letters, value in zip(left.split(","), given):
        extents.update(zip(letters, (size(d) for d in value.shape)))
    everything = sympy.prod(extents.values())
    return 2 * everything, sympy.prod(extent for letter, extent in extents.items() if letter not in right)


def operations_and_terms(node):
    """Floating-point operations of one call, and the number of terms in one element of its result."""
    name, result, given = operator_name(node), tensor(node), operands(node)
    one = sympy.Integer(1)
    if result is None or not given and name != "":
        return sympy.Integer(0), one
    if name in VIEWS or name == "":
        return sympy.Integer(0), one
    if name in PRODUCTS:
        terms = contraction(node, given)
        return 2 * numel(result) * terms, terms
    if name == "einsum":
        return einsum_operations(node, given)
    if name in CONVOLUTIONS:
        terms = ratio(numel(given[1]), size(given[1].shape[0]))
        return 2 * numel(result) * terms, terms
    if name in TRANSPOSED:
        terms = ratio(numel(given[1]), size(given[1].shape[1]))
        return 2 * numel(given[0]) * ratio(numel(given[1]), size(given[1].shape[0])), terms
    if name == "scaled_dot_product_attention":
        query, key = given[0], given[1]
        rows = size(key.shape[-2])
        return 2 * numel(query) * rows + 2 * numel(result) * rows, rows + size(query.shape[-1])
    if name in RECURRENT:
        weights = sum(numel(value) for value in given[2:] if value.dim() == 2)
        steps = numel(given[0]) / size(given[0].shape[-1])
        return 2 * steps * weights, sum(size(value.shape[-1]) for value in given[2:] if value.dim() == 2)
    if name == "layer_norm":
        return 7 * numel(result), sympy.prod(d if isinstance(d, int) else size(d) for d in node.args[1])
    if name == "group_norm":
        return 7 * numel(result), ratio(numel(given[0]), size(given[0].shape[0]) * node.args[1])
    if name == "instance_norm":
        return 7 * numel(result), ratio(numel(given[0]), size(given[0].shape[0]) * size(given[0].shape[1]))
    if name == "batch_norm":
        return 7 * numel(result), ratio(numel(given[0]), size(given[0].shape[1])) if node.args[5] else one
    if name in SOFTMAXES or name in SCANS:
        dim = node.args[1] if isinstance(node.args[1], int) else -1
        return (5 if name in SOFTMAXES else 1) * numel(given[0]), size(given[0].shape[dim])
    if name in REDUCTIONS or name.startswith(("avg_pool", "adaptive_avg_pool")):
        return numel(given[0]), ratio(numel(given[0]), numel(result))
    return numel(result), one


def totals(graph, hint):
    """All operations, and the terms along the deepest path; `hint` gives an expression's value at full size."""
    operations, depth = sympy.Integer(0), {}
    for node in graph.nodes:
        if node.op != "call_function" or not node.users:
            continue
        own, terms = operations_and_terms(node)
        operations += own
        before = max((depth[n] for n in node.all_input_nodes if n in depth), key=hint, default=sympy.Integer(0))
        depth[node] = before + (terms if hint(terms) > 1 else 0)
    deepest = max(depth.values(), key=hint, default=sympy.Integer(0))
    return operations, deepest if hint(deepest) > 1 else sympy.Integer(1)


def has_attention(graph):
    """Whether a product reads a softmax of values that a product has made."""
    of_product, of_weights = set(), set()
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        name, read = operator_name(node).removesuffix("_"), node.all_input_nodes
        is_product = name in PRODUCTS or name == "einsum"
        if name == "scaled_dot_product_attention" or is_product and any(n in of_weights for n in read):
            return True
        if name in SOFTMAXES and any(n in of_product for n in read):
            of_weights.add(node)
        elif any(n in of_weights for n in read):
            of_weights.add(node)
        if is_product or any(n in of_product for n in read):
            of_product.add(node)
    return False


def families(graph):
    names = [operator_name(node).removesuffix("_") for node in graph.nodes if node.op == "call_function"]
    found = [family for family, members in FAMILIES if any(name in members for name in names)]
    if any("pool" in name for name in names):
        found.append("pool")
    working = [name for name in names if name and name not in VIEWS and not name.startswith("_assert")]
    if len(working) >= NETWORK:
        found.append("network")
    known = set().union(*(members for _, members in FAMILIES))
    if any(name not in known and "pool" not in name for name in working) or not found:
        found.append("elementwise")
    return found
