"""gpu_figures on a bundle of stand-in programs: gpu_figures_test.py SOURCE_TREE SCRATCH_FOLDER"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

SOURCE, WORK = sys.argv[1], sys.argv[2]
SCRIPT = os.path.join(SOURCE, "tests", "bench", "gpu_figures")
BUNDLE, OUT, BACK = (os.path.join(WORK, name) for name in ("kevin", "out", "back"))
failed = 0


def check(what, is_so, shown=""):
    global failed
    if not is_so:
        failed += 1
        print(f"FAILED: {what}\n{shown}", flush=True)


def stand_in(name, text):
    path = os.path.join(BUNDLE, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write("#!/bin/bash\n" + text + "\n")
    os.chmod(path, 0o755)


def command(*arguments):
    return [sys.executable, SCRIPT, "--bundle", BUNDLE, "--out", OUT, *arguments]


def figures(*arguments):
    return subprocess.run(command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60,
                          env=dict(os.environ, OUT=BACK))


def ends():
    """The latest end of each step."""
    with open(os.path.join(OUT, "done.jsonl")) as lines:
        return {e["slice"] + "/" + e["step"]: (e["end"], e["code"]) for e in map(json.loads, lines)}


def has_ended(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def fresh():
    shutil.rmtree(WORK, ignore_errors=True)
    os.makedirs(BACK)
    stand_in("kevin", '[ "$1" = --exec ] || { echo "kevin $*"; exit 0; }\nshift\nexec "$@"')
    for name in ("bench_search", "bench_suite", "bench_gpu", "gpu_drawing_test", "gpu_precision_test", "gpu_red_team_test",
                 "fused_test", "bench_adapters", "bench_train", "gpu_python_test"):
        stand_in("tests/" + name, f'echo "{name} $*"')


fresh()
listed = figures("--list")
check("every slice is listed", listed.returncode == 0 and {line.split("/")[0] for line in listed.stdout.splitlines()} == {
    "verdict", "search16", "tune", "learn", "modules", "feedback", "python"}, listed.stdout)
check("a step fits into its slice", all(float(limit) <= 540 for limit in re.findall(r"at most (\S+) s", listed.stdout)), listed.stdout)
for folder in ("env", "policies/local"):
    with open(os.path.join(SOURCE, "tests", folder, "CMakeLists.txt")) as file:
        names = re.findall(r"kevin_test\((\w+)[^)]*LABELS gpu\b", file.read())
        check(f"tests/{folder} has tests for a GPU", names)
        for name in names:
            check(f"{name}, which needs a GPU, is in a slice", f"/tests/{name}" in listed.stdout)
check("the clock of Python candidates is in a slice", "--part python" in listed.stdout, listed.stdout)

quick = figures("search16", "feedback")
check("slices run in the order given", quick.returncode == 0 and
      re.findall(r"^(\w+): \d+ of \d+ steps ended", quick.stdout, re.M) == ["search16", "feedback"], quick.stdout)
check("what a step prints is shown", "bench_search --device cuda:0 --size full --measure --parallel 4 --precision bf16" in quick.stdout,
      quick.stdout)
with open(os.path.join(BACK, "search16", "fp16.log")) as file:
    check("and comes back", "--precision fp16" in file.read())

# Ended steps are not repeated, whatever their code; a failure is the exit code.
fresh()
stand_in("tests/bench_search", 'echo one >>"$0.count"\ncase "$*" in *bf16*) exit 3;; esac')
first, second = figures("search16"), figures("search16")
with open(os.path.join(BUNDLE, "tests", "bench_search.count")) as file:
    check("an ended step is not repeated", len(file.readlines()) == 3, first.stdout + second.stdout)
check("a failure is shown again", first.returncode == 1 and second.returncode == 1 and "search16/bf16: ended before with 3" in second.stdout,
      second.stdout)
check("unless asked for", figures("search16", "--again").stdout.count("== search16/") == 3)

# Lines come while the step runs.
fresh()
go = os.path.join(WORK, "go")
stand_in("tests/bench_search", f'echo first\nwhile [ ! -e {go} ]; do sleep 0.02; done\necho second')
process = subprocess.Popen(command("search16"), stdout=subprocess.PIPE, text=True)
seen = []
for line in process.stdout:
    seen.append(line.strip())
    if line == "first\n":
        open(go, "w").close()
check("lines come while the step runs", process.wait() == 0 and seen.count("second") == 3, "\n".join(seen))

# The limit of a slice holds for what ignores SIGTERM, and for its children.
fresh()
pids = os.path.join(WORK, "pids")
stand_in("tests/bench_search", f'trap "" TERM\nsleep 60 &\necho $! $$ >{pids}\necho begun\nwhile :; do sleep 0.1; done')
start = time.monotonic()
cut = figures("search16", "--limit", "2", "--grace", "0.3")
took = time.monotonic() - start
check("a slice ends at its limit", cut.returncode == 1 and took < 4, f"{took} s\n{cut.stdout}")
check("the step is cut, the others are left", ends() == {"search16/fp16": ("cut", -9)} and cut.stdout.count("left for the next call") == 2,
      cut.stdout)
with open(pids) as file:
    check("nothing of it is left", all(has_ended(pid) for pid in file.read().split()))
stand_in("tests/bench_search", 'echo "$*"')
order = re.findall(r"== search16/(\w+)", figures("search16").stdout)
check("steps that never began come first, then those that were cut", order == ["bf16", "fp32", "fp16"], str(order))
check("and then all have ended", set(ends().values()) == {("ended", 0)}, str(ends()))

# A line cut short by the end of the machine is no obstacle.
with open(os.path.join(OUT, "done.jsonl"), "a") as file:
    file.write('{"slice": "sea')
check("a broken line of the record is skipped", figures("search16").stdout.count("ended before with 0") == 3)

# A request to end reaches the step, which may print its figures.
fresh()
stand_in("tests/bench_search", 'trap "echo final; exit 0" TERM\necho begun\nwhile :; do sleep 0.05; done')
process = subprocess.Popen(command("search16"), stdout=subprocess.PIPE, text=True)
text = ""
for line in process.stdout:
    text += line
    if line == "begun\n":
        process.send_signal(signal.SIGTERM)
check("a request to end reaches the step", process.wait() == 130 and "final\n" in text and text.count("begun") == 1, text)
check("and the step is not counted as ended", not os.path.exists(os.path.join(OUT, "done.jsonl")))

check("an unknown slice is named", (lambda r: r.returncode == 2 and "no slice verdikt" in r.stdout)(figures("verdikt")))
check("a folder without a bundle is named", subprocess.run([sys.executable, SCRIPT, "--bundle", WORK, "verdict"],
                                                           stderr=subprocess.PIPE).returncode == 2)
if failed == 0:
    shutil.rmtree(WORK)
    print("all tests of gpu_figures passed")
sys.exit(failed > 0)
