"""Correct kernels of other forms (env/problems/alternatives) through the whole judge: all must be `measured`.

    python3 tests/bench/alternatives.py PATH-OF-KEVIN [--seconds 540] [--from level1/23] [--only level1/19,level1/23]
        [OPTIONS OF kevin bench ...]

Prints a line for each kernel that is not measured, then how many were, the time, and where the next call goes on. On an idle
machine a kernel takes about 5 s, all of them half an hour. Exit code 1 where one was not measured."""

import argparse
import glob
import json
import os
import re
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDER = os.path.join(ROOT, "env", "problems", "alternatives")


def problem_of(path):
    level, folder = path.split(os.sep)[-3:-1]
    return f"{level}/{int(re.match(r'[0-9]+', folder).group())}"


def judge(kevin, path, options):
    command = [kevin, "bench", "--problem", problem_of(path), path, "--device", "cpu", "--json", "--diagnose", "off", *options]
    process = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in process.stdout.splitlines():
        event = json.loads(line)
        if event.get("event") == "evaluation":
            return event["outcome"], event.get("reason") or "", event.get("speedup")
    return "void", process.stderr.strip()[-300:], None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kevin")
    parser.add_argument("--seconds", type=float, default=0, help="begin no further kernel after this time; 0: no limit")
    parser.add_argument("--from", dest="start", default="", help="begin with this problem")
    parser.add_argument("--only", default="", help="these problems")
    known, options = parser.parse_known_args()
    kernels = sorted(glob.glob(os.path.join(FOLDER, "level*", "*", "*.cpp")))
    if known.only:
        kernels = [k for k in kernels if problem_of(k) in known.only.split(",")]
    if known.start:
        kernels = kernels[[problem_of(k) for k in kernels].index(known.start):]
    begin, judged, measured, next_problem = time.monotonic(), 0, 0, ""
    for path in kernels:
        # A problem is judged whole, so that the next call can begin with one.
        if known.seconds and time.monotonic() - begin > known.seconds and problem_of(path) != problem_of(kernels[judged - 1]):
            next_problem = problem_of(path)
            break
        outcome, reason, speedup = judge(os.path.abspath(known.kevin), path, options)
        judged += 1
        measured += outcome == "measured"
        if outcome != "measured":
            print(f"{problem_of(path)} {os.path.basename(path)}: {outcome} {reason}", flush=True)
    seconds = time.monotonic() - begin
    print(f"{measured} of {judged} measured, {seconds:.0f} s, {seconds / max(judged, 1):.1f} s each"
          + (f"; {len(kernels) - judged} are left: --from {next_problem}" if next_problem else ""))
    return 0 if measured == judged else 1


if __name__ == "__main__":
    sys.exit(main())
