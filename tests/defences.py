"""Switches each defence off once, to see its test fail: those of the verdict, and what keeps training from learning the
wrong thing.

    python3 tests/defences.py ROOT --check              every line of the lists is in its file once, every test is there (ctest)
    python3 tests/defences.py ROOT --table              the tables of tests/README.md
    python3 tests/defences.py ROOT --try NAME [BUILD]   changes the source, builds, runs the test, puts the source back

--try needs a finished build in ROOT/build/dev; BUILD is the command before the names of targets (default: cmake --build
build/dev --target). Ends with 0 where the test failed, as it must.

The lists are in defences_verdict.py and defences_learning.py. A defence: its name, what it is, the change (file, text,
text without the defence), the test program and its arguments; further changes, where one is not enough. NOT_TRIED has the
names whose test has not been seen to fail yet."""

import os
import shlex
import signal
import subprocess
import sys

sys.dont_write_bytecode = True
import defences_learning  # noqa: E402
import defences_verdict  # noqa: E402

LISTS = [defences_verdict, defences_learning]
DEFENCES = [defence for one in LISTS for defence in one.DEFENCES]


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


def write(root, path, text):
    with open(os.path.join(root, path), "w", encoding="utf-8") as file:
        file.write(text)


def changes_of(defence):
    return [defence[2:5], *defence[7:]]


def cases_of(root):
    """All names of test cases, without what stands behind the name."""
    names = []
    for folder, _, files in os.walk(os.path.join(root, "tests")):
        for file in files:
            if file.endswith(".cc"):
                text = read(root, os.path.join(folder, file))
                names += [part.split('"')[1] for part in text.split("TEST_CASE(")[1:]]
    return names


def check(root):
    wrong, cases = [], cases_of(root)
    names = [defence[0] for defence in DEFENCES]
    wrong += [f"{name}: the name of two defences" for name in sorted(set(names)) if names.count(name) > 1]
    for one in LISTS:
        wrong += [f"{name}: not tried, and no defence" for name in sorted(one.NOT_TRIED.difference(names))]
        if table(one) not in read(root, "tests/README.md"):
            wrong.append(f"tests/README.md does not have the table of {one.__name__} that --table prints")
    for defence in DEFENCES:
        for path, old, _ in changes_of(defence):
            if read(root, path).count(old) != 1:
                wrong.append(f"{defence[0]}: {path} does not have this text once: {old}")
        case = shlex.split(defence[6])[0].rstrip("*")
        if not any(name.startswith(case) for name in cases):
            wrong.append(f"{defence[0]}: no test case begins with {case}")
    return wrong


def table(one):
    lines = ["| defence | where | the test that fails without it |", "| --- | --- | --- |"]
    for name, what, path, _, _, program, arguments, *_ in one.DEFENCES:
        words = shlex.split(arguments)
        case = words[-1] if "-c" in words else words[0].rstrip("*")
        lines.append(f"| {what} | `{path}` | `{program}`: {case}{' (not tried yet)' if name in one.NOT_TRIED else ''} |")
    return "\n".join(lines)


def run(root, name, build):
    defence = next(d for d in DEFENCES if d[0] == name)
    paths = {path: read(root, path) for path, _, _ in changes_of(defence)}
    try:
        for path, old, new in changes_of(defence):
            write(root, path, read(root, path).replace(old, new))
        targets = [defence[5]]  # and the programs that it starts, by its dependencies
        if subprocess.run([*build, *targets], cwd=root).returncode != 0:
            sys.exit(f"{name}: does not build")
        test = os.path.join(root, "build/dev/bin", defence[5])
        code = subprocess.run([test, *shlex.split(defence[6])], cwd=root).returncode
    finally:
        for path, text in paths.items():
            write(root, path, text)
    print(f"{name}: {'the test fails without it' if code else 'NO TEST FAILS without it'}")
    return 0 if code else 1


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    root, mode = sys.argv[1:3]
    if mode == "--table":
        print("\n\n".join(table(one) for one in LISTS))
        return 0
    if mode == "--try":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended from outside"))  # the source is put back
        return run(root, sys.argv[3], sys.argv[4:] or ["cmake", "--build", "build/dev", "--target"])
    wrong = check(root)
    print("\n".join(wrong) or f"{len(DEFENCES)} defences")
    return len(wrong) > 0


if __name__ == "__main__":
    sys.exit(main())
