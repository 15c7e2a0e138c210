"""Calls of load_inline whose arguments stand in the text, so that compiling can begin before anything is imported."""

import ast

POSITIONAL = ("name", "cpp_sources", "cuda_sources")
MOST_CALLS = 8


class Unknown(Exception):
    """Not a constant of the text."""


def value_of(node, names):
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name) and node.id in names:
        return names[node.id]
    if isinstance(node, (ast.List, ast.Tuple)):
        values = [value_of(each, names) for each in node.elts]
        return values if isinstance(node, ast.List) else tuple(values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = value_of(node.left, names), value_of(node.right, names)
        if isinstance(left, str) and isinstance(right, str):
            return left + right
    raise Unknown


def constants_of(tree, outer):
    """Names that are assigned once in the body of a module or function, to constants, and those of around it."""
    names, seen = dict(outer), set()
    for statement in tree.body:
        if not isinstance(statement, ast.Assign):
            continue
        for target in statement.targets:
            for name in ast.walk(target):
                if isinstance(name, ast.Name):
                    names.pop(name.id, None)
        target = statement.targets[0]
        if len(statement.targets) != 1 or not isinstance(target, ast.Name) or target.id in seen:
            continue
        seen.add(target.id)
        try:
            names[target.id] = value_of(statement.value, names)
        except Unknown:
            pass
    return names


def calls_in(node, names):
    """(call, the constants that are known there), for each call in `node`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            yield child, names
        inner = constants_of(child, names) if isinstance(child, ast.FunctionDef) else names
        yield from calls_in(child, inner)


def constant_calls(source):
    """[(name, cpp_sources, cuda_sources, options)], those with a value for each argument. A guess: the text may call it
    otherwise, and then nothing asks for the result."""
    calls = []
    try:
        tree = ast.parse(source)
        found = list(calls_in(tree, constants_of(tree, {})))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    for node, names in found:
        if "load_inline" not in (getattr(node.func, "id", ""), getattr(node.func, "attr", "")):
            continue
        try:
            values = {name: value_of(given, names) for name, given in zip(POSITIONAL, node.args)}
            values.update({keyword.arg: value_of(keyword.value, names) for keyword in node.keywords if keyword.arg})
        except Unknown:
            continue
        if len(node.args) <= len(POSITIONAL) and "name" in values and "cpp_sources" in values:
            calls.append((values.pop("name"), values.pop("cpp_sources"), values.pop("cuda_sources", None), values))
    return calls[:MOST_CALLS]
