"""Calls of load_inline whose arguments stand in the text, so that compiling can begin before anything is imported."""

import ast
import collections

POSITIONAL = ("name", "cpp_sources", "cuda_sources")
MOST_CALLS = 8
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


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


def parameters_of(scope):
    given = scope.args
    return [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg) if each]


def count_bindings(node, counts):
    """Counts how often each name is bound in a scope: by statements of any depth, and not in functions and classes below."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Name) and not isinstance(child.ctx, ast.Load):
            counts[child.id] += 1
        elif isinstance(child, ast.alias):
            counts[(child.asname or child.name).split(".")[0]] += 1
        elif isinstance(child, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and child.name:
            counts[child.name] += 1
        elif isinstance(child, ast.MatchMapping) and child.rest:
            counts[child.rest] += 1
        if isinstance(child, (*FUNCTIONS, ast.ClassDef)):
            counts[child.name] += 1
        elif not isinstance(child, ast.Lambda):
            count_bindings(child, counts)


def assigned(statement):
    """(name, the value's node) of an assignment to one name."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name):
        return statement.targets[0].id, statement.value
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
        return statement.target.id, statement.value
    return None


def constants_of(scope, outer, shared):
    """Names with one value in a module, class or function: bound once, in its body itself, to a constant; and those of
    around it that it does not bind. `shared`: names that other scopes may bind as well."""
    counts = collections.Counter(shared)
    if isinstance(scope, (*FUNCTIONS, ast.Lambda)):
        counts.update(parameters_of(scope))
    body = [] if isinstance(scope, ast.Lambda) else scope.body
    for statement in body:
        count_bindings(ast.Module([statement], []), counts)
    names = {name: value for name, value in outer.items() if name not in counts}
    for statement in body:
        found = assigned(statement)
        if found is None or counts[found[0]] != 1:
            continue
        try:
            names[found[0]] = value_of(found[1], names)
        except Unknown:
            pass
    return names


def calls_in(node, names, of_functions, shared):
    """(call, the constants that are known there), for each call in `node`. `of_functions`: what a function below sees, which
    is not what the body of its class binds."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            yield child, names
        if isinstance(child, (*FUNCTIONS, ast.Lambda)):
            inner = constants_of(child, of_functions, shared)
            yield from calls_in(child, inner, inner, shared)
        elif isinstance(child, ast.ClassDef):
            yield from calls_in(child, constants_of(child, names, shared), of_functions, shared)
        else:
            yield from calls_in(child, names, of_functions, shared)


def constant_calls(source):
    """[(name, cpp_sources, cuda_sources, options)], those with a value for each argument. A guess: the text may never make the
    call, or make it with other values. So a guess that does not compile says nothing about the text."""
    calls = []
    try:
        tree = ast.parse(source)
        shared = {name for node in ast.walk(tree) if isinstance(node, (ast.Global, ast.Nonlocal)) for name in node.names}
        names = constants_of(tree, {}, shared)
        found = list(calls_in(tree, names, names, shared))
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
