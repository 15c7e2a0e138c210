"""Parts of a candidate that its author marks (env/diagnosis/stages.h). In a diagnosis a comment line `# stage NAME` between two
statements becomes a call of a timer, put into the syntax tree, so that the text keeps its lines."""

import ast
import functools
import io
import os
import re
import time
import tokenize

MARK = re.compile(r"#[ \t]*stage[ \t]+([A-Za-z0-9_.-]+)[ \t\r]*")
TIMER = "__kevin_stage__"  # the timer's name in the candidate's module
MOST_STAGES = 16


class Timer:
    """Sums of nanoseconds: before the first mark, then by stage. The first call is left out: it is slower than those that are
    measured. `synchronize` waits for what a device was given to do, at each border of a stage."""

    def __init__(self, synchronize=lambda: None):
        self.synchronize = synchronize
        self.sums, self.stage, self.last, self.calls = [0] * (MOST_STAGES + 1), 0, 0, -1

    def mark(self, stage):
        self.synchronize()
        now = time.perf_counter_ns()
        self.sums[self.stage] += now - self.last
        self.stage, self.last = stage, now

    def around(self, forward):
        @functools.wraps(forward)
        def timed(*arguments, **named):
            self.synchronize()
            self.stage, self.last = 0, time.perf_counter_ns()
            try:
                return forward(*arguments, **named)
            finally:
                self.mark(0)
                self.end_call()
        return timed

    def end_call(self):
        self.calls += 1
        if self.calls == 0:
            self.sums = [0] * (MOST_STAGES + 1)
        elif self.calls & (self.calls - 1) == 0:
            os.write(2, ("\nkevin-stage-times " + " ".join(map(str, self.sums)) + "\n").encode())


def marks_in(text, names):
    """{line: number of the stage, from 1} of the comment lines that mark stages with these names."""
    marks = {}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        found = token.type == tokenize.COMMENT and not token.line[:token.start[1]].strip() and MARK.fullmatch(token.string)
        if found and found[1] in names:
            marks[token.start[0]] = names.index(found[1]) + 1
    return marks


def first_line(statement):
    decorators = getattr(statement, "decorator_list", [])
    return min([statement.lineno] + [decorator.lineno for decorator in decorators])


def with_marks(statements, begin, marks):
    """A block of statements with a call of the timer for each mark that stands in it, at `begin` or later: before a
    statement, not inside one."""
    marked = []
    for statement in statements:
        for line in range(begin, first_line(statement)):
            if line in marks:
                call = ast.parse(f"{TIMER}({marks[line]})").body[0]
                marked.append(ast.copy_location(call, statement))
        marked.append(statement)
        begin = statement.end_lineno + 1
    return marked


def marked_code(text, path, names):
    """The compiled text with calls of the timer in its functions."""
    tree, marks = ast.parse(text, path), marks_in(text, names)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef)):
            continue
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list) and block:
                setattr(node, field, with_marks(block, begin_of(node, block), marks))
    return compile(ast.fix_missing_locations(tree), path, "exec")


def begin_of(node, block):
    """The first line of which a mark belongs to the block: after the line that opens it."""
    before = [child for child in ast.walk(node) if hasattr(child, "end_lineno") and child is not node
              and child.end_lineno < first_line(block[0])]
    return max([getattr(node, "lineno", 0)] + [child.end_lineno for child in before]) + 1
