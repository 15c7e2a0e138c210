"""Names for the sizes of a graph, and a small set of them."""

import re

import sympy

SMALL_BYTES = 64 << 20
STILL_SMALL_BYTES = 512 << 20
SMALL_OPERATIONS = 4e9
LEAST = 2
KEEP_BATCH = 4
# Words that C++ or TorchScript keeps for itself (env/problem_file.cc has the list that counts).
RESERVED = set("""and as assert auto bool break case char class const def default delete do double else enum except
export extern float for forward from global goto if import in inline int is lambda launch long namespace new not
operator or pass private public raise register return short signed sizeof static struct switch template this torch try
typedef union unsigned using virtual void volatile while with xor yield params p real no_ints""".split())


def legal_name(wanted, taken):
    name = re.sub(r"[^A-Za-z0-9_]", "_", wanted) or "x"
    name = "x" + name if name[0].isdigit() else name.lstrip("_") or "x"
    while name in RESERVED or name in taken:
        name += "_"
    return name


class Sizes:
    """The symbols of the graph's input shapes, named after constants of the person's file where one fits."""

    def __init__(self, shapes, hints, constants, taken):
        symbols = []
        for shape in shapes:
            for dimension in shape:
                symbols += [s for s in sorted(dimension.free_symbols, key=str) if s not in symbols]
        self.hints = {symbol: hints[symbol] for symbol in symbols}
        self.names, used = {}, set(taken)
        for i, symbol in enumerate(symbols):
            same = [name for name, value in constants.items()
                    if value == self.hints[symbol] and name not in used and name not in RESERVED]
            ambiguous = sum(hint == self.hints[symbol] for hint in self.hints.values()) > 1
            name = same[0] if len(same) == 1 and not ambiguous else legal_name(f"N{i}", used)
            self.names[symbol] = name
            used.add(name)
        self.full = {self.names[symbol]: value for symbol, value in self.hints.items()}

    def at_full(self, e):
        return int(sympy.sympify(e).subs(self.hints))

    def at(self, e, sizes):
        return int(sympy.sympify(e).subs({symbol: sizes[name] for symbol, name in self.names.items()}))

    def small(self, total_bytes, operations, lower_bounds, first):
        """Halves the batch (`first`) and then whatever is largest until it fits a small CPU; None where it cannot."""
        values = dict(self.hints)
        least = {symbol: max(LEAST, lower_bounds.get(symbol, LEAST)) for symbol in values}

        def cost(e):
            return int(sympy.sympify(e).subs(values))

        while cost(total_bytes) > SMALL_BYTES or cost(operations) > SMALL_OPERATIONS:
            enough = {symbol: max(KEEP_BATCH if symbol == first else 8, least[symbol]) for symbol in values}
            can = [symbol for symbol, value in values.items() if value // 2 >= enough[symbol]]
            if not can:
                break
            largest = first if first in can else max(can, key=lambda symbol: values[symbol])
            like = [symbol for symbol in can if symbol != first and values[symbol] == values[largest]]
            for symbol in [first] if largest == first else like:  # square stays square
                values[symbol] //= 2
        if cost(total_bytes) > STILL_SMALL_BYTES:
            return None
        return {self.names[symbol]: value for symbol, value in values.items()}
