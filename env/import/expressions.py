"""Sizes and numbers of elements as expressions in the symbols of a graph, and as problem files write them."""

import sympy
import torch
from torch.utils._sympy.functions import CleanDiv, FloorDiv

from .refusals import Unwritable


def quotient(above, below, names):
    parts = [f"({expression(part, names)})" if isinstance(part, (sympy.Add, sympy.Mul)) else expression(part, names)
             for part in (above, below)]
    return f"({parts[0]} / {parts[1]})"


def expression(e, names):
    """A sympy expression as problem files write them."""
    e = sympy.sympify(e)
    if e.is_Integer:
        return str(int(e))
    if e.is_Symbol:
        return names[e]
    if isinstance(e, (FloorDiv, CleanDiv)):
        return quotient(*e.args, names)
    if isinstance(e, sympy.Add):
        text = ""
        for term in sorted(e.args, key=lambda term: (term.could_extract_minus_sign(), term.is_Integer)):
            negative = term.could_extract_minus_sign()
            part = expression(-term if negative else term, names)
            text += (" - " if negative else " + ") + part if text else ("-" if negative else "") + part
        return text
    if isinstance(e, sympy.Mul):
        below = sympy.denom(e)
        if below != 1:
            return quotient(sympy.numer(e), below, names)
        return "*".join(f"({expression(a, names)})" if isinstance(a, sympy.Add) else expression(a, names)
                        for a in e.args)
    if isinstance(e, sympy.Pow) and e.exp.is_Integer and 0 < int(e.exp) < 8:
        base = expression(e.base, names)
        return "*".join([f"({base})" if isinstance(e.base, sympy.Add) else base] * int(e.exp))
    raise Unwritable(f"a size of the form {e}")


def size(value):
    """A dimension or a number of elements as a sympy expression."""
    return value.node.expr if isinstance(value, torch.SymInt) else sympy.Integer(int(value))


def numel(value):
    product = sympy.Integer(1)
    for dimension in value.shape:
        product *= size(dimension)
    return product
