#!/usr/bin/env python3
"""What trying settings of knobs is worth: episodes with --tune 0 and with --tune N, on the same problems and seeds.

    tune_study.py run PROGRAMS OUT --suite core [--device cpu] [--tune 8] [--turns 16] [--seeds 5] [--policy search]
        [-- OPTIONS]
    tune_study.py table OUT [--tune 8]

`run` calls `kevin collect` once for each device, each seed and each of both ways, one episode at a time, into
OUT/DEVICE/tuneN-seedS.db; a run that was stopped goes on where it was. --device may stand several times (cpu, cuda:0).
OPTIONS go to `kevin collect` (--size small). After each seed `run` prints the table so far. `table` compares the best correct kernel so far at equal numbers of judged texts, at equal numbers of texts that ran at all
(judged ones and trials), and at equal seconds: the geometric mean of the ratio tuned / untuned over problems and
seeds with its 95 % interval over the pairs. The best of many measurements is biased upwards, more so without
knobs, where more texts are judged in the same time; the last line compares confirmed speed-ups, which are not.
"""

import argparse
import collections
import math
import pathlib
import sqlite3
import subprocess
import sys

TURNS = """
SELECT r.problem, r.episode, r.turn, r.correct, r.speedup, t.seconds,
       (SELECT count(*) FROM knob_trials k WHERE k.episode = r.episode AND k.turn = r.turn AND k.outcome IS NOT NULL)
FROM turn_results r JOIN turns t ON t.episode = r.episode AND t.turn = r.turn
WHERE r.turn > 0 ORDER BY r.episode, r.turn
"""

# One point of an episode: what it had used when a turn ended, and its best speed-up until then (None: no kernel).
Point = collections.namedtuple("Point", "judged ran seconds best")


def database(out, tune, seed):
    return out / f"tune{tune}-seed{seed}.db"


def run(options):
    for seed in range(1, options.seeds + 1):
        for device in options.device or ["cpu"]:
            out = options.out / device.replace(":", "")
            out.mkdir(parents=True, exist_ok=True)
            for tune in (0, options.tune):
                print(f"\n== {device}, seed {seed} of {options.seeds}, --tune {tune}", flush=True)
                command = [options.programs / "kevin", "collect", "--suite", options.suite, "--policy", options.policy,
                           "--turns", options.turns, "--episodes", 1, "--seed", seed, "--tune", tune, "--parallel", 1,
                           "--device", device, "--db", database(out, tune, seed), "--out", out / "kernels",
                           *options.more]
                subprocess.run([str(word) for word in command], check=True)
            print(f"\n== {device}, {seed} of {options.seeds} seeds", flush=True)
            print_table(out, options.tune)


def curves(path):
    """The points of each problem's episode, and its confirmed speed-up."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
        rows = connection.execute(TURNS).fetchall()
        confirmed = dict(connection.execute("SELECT problem, best_speedup FROM episodes"))
    points = collections.defaultdict(list)
    for problem, _, turn, correct, speedup, seconds, trials in rows:
        last = points[problem][-1] if points[problem] else Point(0, 0, 0.0, None)
        best = last.best
        if correct and speedup and (best is None or speedup > best):
            best = speedup
        points[problem].append(Point(turn, last.ran + 1 + trials, last.seconds + seconds, best))
    return points, confirmed


def best_at(points, field, budget):
    best = None
    for point in points:
        if getattr(point, field) <= budget:
            best = point.best
    return best


def budgets(field, arms):
    """Powers of two that some episode of both ways reaches."""
    most = min(max(getattr(points[-1], field) for points in arm.values() if points) for arm in arms)
    least = min(getattr(points[0], field) for arm in arms for points in arm.values() if points)
    power = 2.0 ** math.ceil(math.log2(max(least, 1e-3)))
    while power <= most:
        yield power
        power *= 2


def summary(pairs):
    """`pairs`: speed-ups (tuned, untuned), None without a kernel."""
    both = [math.log(a / b) for a, b in pairs if a and b]
    only = [sum(1 for a, b in pairs if a and not b), sum(1 for a, b in pairs if b and not a)]
    if not both:
        return f"{'-':>24}  {0:5}  {only[0]:5}  {only[1]:7}"
    mean = sum(both) / len(both)
    spread = math.sqrt(sum((x - mean) ** 2 for x in both) / max(len(both) - 1, 1) / len(both))
    low, high = math.exp(mean - 1.96 * spread), math.exp(mean + 1.96 * spread)
    return f"{math.exp(mean):.3f} ({low:.3f} to {high:.3f})".rjust(24) + f"  {len(both):5}  {only[0]:5}  {only[1]:7}"


def table(options):
    folders = sorted({path.parent for path in options.out.glob("**/tune0-seed*.db")})
    if not folders:
        sys.exit(f"{options.out}: no tune0-seedS.db in it")
    for folder in folders:
        print(f"== {folder}")
        print_table(folder, options.tune)


def print_table(out, tuned):
    arms = {0: {}, tuned: {}}
    confirmed = {0: {}, tuned: {}}
    for tune in arms:
        for path in sorted(out.glob(f"tune{tune}-seed*.db")):
            seed = path.stem.split("seed")[1]
            points, ends = curves(path)
            arms[tune].update({(problem, seed): list_of for problem, list_of in points.items()})
            confirmed[tune].update({(problem, seed): value for problem, value in ends.items()})
    common = sorted(arms[0].keys() & arms[tuned].keys())
    if not common:
        print(f"{out}: no problem and seed was run both with --tune 0 and with --tune {tuned}")
        return
    print(f"{len(common)} pairs of episodes; ratio: --tune {tuned} over --tune 0\n")
    print(f"{'at equal':8}  {'budget':>8}  {'ratio':>24}  pairs  tuned  untuned (only that way has a kernel)")
    for field in ("judged", "ran", "seconds"):
        both = [{key: arm[key] for key in common} for arm in (arms[tuned], arms[0])]
        for budget in budgets(field, both):
            pairs = [tuple(best_at(arm[key], field, budget) for arm in both) for key in common]
            print(f"{field:8}  {budget:8g}  {summary(pairs)}")
    ends = [(confirmed[tuned].get(key), confirmed[0].get(key)) for key in common]
    print(f"{'the end':8}  {'all':>8}  {summary(ends)}   (confirmed)", flush=True)


def main():
    arguments = sys.argv[1:]
    more = []
    if "--" in arguments:
        more = arguments[arguments.index("--") + 1:]
        arguments = arguments[:arguments.index("--")]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(required=True)
    part = parts.add_parser("run")
    part.add_argument("programs", type=pathlib.Path)
    part.add_argument("--suite", required=True)
    part.add_argument("--device", action="append", help="cpu, cuda:N; may stand several times (cpu)")
    part.add_argument("--policy", default="search")
    part.add_argument("--turns", type=int, default=16)
    part.add_argument("--seeds", type=int, default=5)
    part.set_defaults(action=run)
    parts.add_parser("table").set_defaults(action=table)
    for part in parts.choices.values():
        part.add_argument("out", type=pathlib.Path)
        part.add_argument("--tune", type=int, default=8)
    options = parser.parse_args(arguments)
    options.more = more
    options.action(options)


if __name__ == "__main__":
    main()
