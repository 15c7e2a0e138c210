#!/usr/bin/env python3
"""Writes env/problems/suites/*.txt: named lists of problems, one id a line. The output is the same on every machine.

    env/problems/generate/suites.py [--check]     # --check: report differences, write nothing

Problems with the flag `inadmissible` stay in the lists as comments.
"""

import hashlib
import pathlib
import sys
import tomllib

PROBLEMS = pathlib.Path(__file__).resolve().parent.parent
SEED = "kevin 1"
DEV = 20
HELD_OUT = {"norm", "scan", "pool"}
# The subsets that KernelBench's own dataset.py (commit 423217d) calls representative.
REPRESENTATIVE = {
    1: [1, 3, 6, 18, 23, 26, 33, 36, 40, 42, 48, 54, 57, 65, 77, 82, 86, 87],
    2: [1, 2, 8, 18, 23, 28, 33, 43],
    3: [1, 5, 8, 11, 20, 21, 33, 38, 43],
}


def load():
    paths = [*PROBLEMS.glob("level[123]/*.toml"), *PROBLEMS.glob("chains/*.toml")]
    files = [tomllib.loads(path.read_text()) for path in paths]
    return {file["id"]: file for file in sorted(files, key=lambda file: number(file["id"]))}


def number(problem):
    """The sort key of an id: levels by their number, then the chains."""
    folder, position = problem.split("/")
    return int(folder.removeprefix("level")) if folder.startswith("level") else 4, int(position)


def shuffled(problems):
    """Sorted by the hash of seed and id: independent of the version of any generator."""
    return sorted(problems, key=lambda problem: hashlib.sha256(f"{SEED} {problem}".encode()).digest())


def suites(problems):
    """{name: (description, ids)}"""
    of_level = {level: [p for p in problems if number(p)[0] == level] for level in (1, 2, 3)}
    result = {f"level{level}": (f"All of level {level}.", ids) for level, ids in of_level.items()}
    for level, positions in REPRESENTATIVE.items():
        ids = [f"level{level}/{position}" for position in positions]
        result[f"representative-level{level}"] = (f"KernelBench's representative subset of level {level}.", ids)
    single = of_level[1] + of_level[2]
    dev = set(shuffled(single)[:DEV])
    result["dev"] = (f"{DEV} problems of levels 1 and 2, drawn by chance; the others are in train.txt.",
                     [p for p in single if p in dev])
    result["train"] = ("Levels 1 and 2 without dev.txt.", [p for p in single if p not in dev])
    held = [p for p in single if HELD_OUT & set(problems[p]["families"])]
    result["test"] = ("Chains in the manner of level 2 that are in none of the levels (env/problems/generate/chains.py).",
                      [p for p in problems if number(p)[0] == 4])
    families = ", ".join(sorted(HELD_OUT))
    result["families-test"] = (f"All of levels 1 and 2 in which an operator is of the families {families}.", held)
    result["families-train"] = (f"Levels 1 and 2 without any operator of the families {families}.",
                                [p for p in single if p not in held])
    return result


def text(what, ids, problems):
    lines = [f"# {what} Written by env/problems/generate/suites.py."]
    for problem in ids:
        reason = problems[problem].get("flags", {}).get("inadmissible")
        lines.append(f"# {problem} is inadmissible: {reason}" if reason else problem)
    return "\n".join(lines) + "\n"


def main():
    problems, differs = load(), 0
    folder = PROBLEMS / "suites"
    folder.mkdir(exist_ok=True)
    for name, (what, ids) in suites(problems).items():
        path, wanted = folder / f"{name}.txt", text(what, ids, problems)
        if path.exists() and path.read_text() == wanted:
            continue
        differs += 1
        print(f"{path.name}: {'differs' if '--check' in sys.argv else 'written'}, {len(ids)} problems")
        if "--check" not in sys.argv:
            path.write_text(wanted)
    return 1 if differs and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
