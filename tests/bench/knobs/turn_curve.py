#!/usr/bin/env python3
"""How turns are spent: the best correct kernel so far against turns, from the records of one or more collections.

    turn_curve.py DB...

One line for each power of two of turns: the geometric mean over all episodes of the best speed-up so far, over those
episodes that have a correct kernel by then, and how many have none. Each episode's own curve follows. Speed-ups of
turns are single measurements, and the best of many is biased upwards: the column `confirmed` is the winner of the
whole episode measured again, which is not. Verdicts under superseded rules count as the database's views say.
"""

import collections
import math
import pathlib
import sqlite3
import sys

TURNS = "SELECT problem, episode, turn, correct, speedup FROM turn_results WHERE turn > 0 ORDER BY episode, turn"
EPISODES = "SELECT id, problem, best_speedup, best_speedup_low, best_speedup_high FROM episodes WHERE turns_asked > 0"


def curves(paths):
    """By episode: the best speed-up so far after each turn (None: no correct kernel), and the confirmed winner."""
    best, ends = collections.defaultdict(list), {}
    for path in paths:
        if not path.is_file():
            sys.exit(f"{path}: no such database")
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
            for problem, episode, turn, correct, speedup in connection.execute(TURNS):
                so_far = best[episode][-1] if best[episode] else None
                if correct and speedup:
                    so_far = max(so_far or 0, speedup)
                best[episode].append(so_far)
            for episode, *end in connection.execute(EPISODES):
                ends[episode] = end
    return best, ends


def mean(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def text(value):
    return "-" if value is None else f"{value:.3f}x"


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    best, ends = curves([pathlib.Path(name) for name in sys.argv[1:]])
    if not best:
        sys.exit("no turns")
    longest = max(map(len, best.values()))
    marks = [2 ** i for i in range(longest.bit_length()) if 2 ** i <= longest]
    if marks[-1] != longest:
        marks.append(longest)
    whole = {episode: curve for episode, curve in best.items() if len(curve) == longest}
    print(f"{len(whole)} episodes of {longest} turns ({len(best) - len(whole)} shorter ones left out)")
    print(f"{'turns':>5}  {'mean':>8}  without a kernel")
    for mark in marks:
        at = [curve[mark - 1] for curve in whole.values()]
        print(f"{mark:5}  {text(mean([value for value in at if value])):>8}  {sum(value is None for value in at)}")
    print(f"\n{'episode':26}  {'problem':12}  " + "  ".join(f"{mark:>8}" for mark in marks) + "  confirmed")
    for episode, curve in whole.items():
        problem, value, low, high = ends[episode]
        confirmed = f"{value:.3f}x ({low:.3f}x to {high:.3f}x)" if value else "-"
        print(f"{episode}  {problem:12}  " + "  ".join(f"{text(curve[mark - 1]):>8}" for mark in marks) + f"  {confirmed}")


if __name__ == "__main__":
    main()
