"""Names for the sizes of a graph, and a small set of them."""

import re

import sympy

SMALL_BYTES = 64 << 20
STILL_SMALL_BYTES = 512 << 20
SMALL_OPERATIONS = 1e9  # 1 to 30 ms, as for the problems that ship
KEEP, KEEP_BATCH = 8, 4
# Words that C++ or TorchScript keeps for itself (env/problem/problem_file.cc has the list that counts).
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

    def fits(self, total_bytes, sizes):
        return self.at(total_bytes, sizes) <= STILL_SMALL_BYTES

    def smaller(self, total_bytes, operations, lower_bounds, inputs, first, legal):
        """Sizes for a small CPU, halved as far as that needs: all of them within the bounds of the trace, all of them
        (it often bounds without need), those of `inputs`, and only the batch, `first`. `legal` says whether operators
        take the shapes that some sizes give. They may still be too large for a small CPU."""
        found = []
        for free, bounds in ((list(self.hints), lower_bounds), (list(self.hints), {}), (inputs, {}),
                             ([first] if first in self.hints else [], lower_bounds)):
            sizes = self._halved(total_bytes, operations, bounds, first, free, legal)
            if sizes not in found:
                found.append(sizes)
        return found

    def _named(self, values):
        return {self.names[symbol]: value for symbol, value in values.items()}

    def _halved(self, total_bytes, operations, bounds, first, free, legal):
        values, fixed = dict(self.hints), set()
        enough = {s: max(KEEP_BATCH if s == first else KEEP, bounds.get(s, KEEP_BATCH)) for s in free}

        def group(symbol):
            """Those to be halved with it: square stays square. None if one of them must not be."""
            alike = [s for s in free if s not in fixed and s != first and values[s] == values[symbol]]
            alike = [first] if symbol == first else alike
            return alike if all(values[s] // 2 >= enough[s] for s in alike) else None

        def trial(symbols):
            return {**values, **{s: values[s] // 2 for s in symbols}}

        while True:
            named = self._named(values)
            if self.at(total_bytes, named) <= SMALL_BYTES and self.at(operations, named) <= SMALL_OPERATIONS:
                return named
            can = [symbol for symbol in free if symbol not in fixed and group(symbol)]
            if not can:
                return named
            halved = group(first if first in can else max(can, key=lambda s: values[s]))
            if legal(self._named(trial(halved))):
                values = trial(halved)
            else:
                fixed.update(s for s in halved if len(halved) == 1 or not legal(self._named(trial([s]))))
