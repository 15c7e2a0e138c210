#!/bin/bash
# Kinds in Python as a user has them, whole: python_kinds_test.sh PATH-OF-KEVIN FOLDER-OF-THIS-TEST
# A scripted model writes the kernels; they are judged for real. Needs a Python with torch, else it is skipped (77).
set -u
kevin=$1
here=$2
python=${KEVIN_PYTHON:-python3}
if ! "$python" -c 'import torch' 2>/dev/null; then
  echo "skipped: $python cannot import torch"
  exit 77
fi
work=$(mktemp -d)
server=
trap '[ -n "$server" ] && kill "$server" 2>/dev/null; rm -rf "$work"' EXIT
cd "$work" || exit 1
export XDG_DATA_HOME=$work/data XDG_CACHE_HOME=$work/cache OPENAI_API_KEY=none
failures=0
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }
# expect CODE PATTERN ARGUMENTS...: the exit code, and a pattern in what is printed.
expect() {
  local code=$1 pattern=$2
  shift 2
  "$kevin" "$@" >out.txt 2>err.txt </dev/null
  local rc=$?
  [ $rc = "$code" ] && cat out.txt err.txt | grep -q -- "$pattern" || fail "kevin $* -> $rc (expected $code, $pattern): $(cat out.txt err.txt)"
}

# serve FOLDER: a model that answers from FOLDER/N.md at the attempt after N others.
serve() {
  [ -n "$server" ] && kill "$server" 2>/dev/null
  rm -f port
  "$python" "$here/scripted_server.py" "$1" port &
  server=$!
  for _ in $(seq 100); do [ -e port ] && break; sleep 0.1; done
  url=http://127.0.0.1:$(cat port)/v1
}
answer() { # answer FILE: standard input as a file in a fence
  { echo '```python'; cat; echo '```'; echo "One sentence on $1."; } >"$1"
}

# --- modelnew: each outcome, told to the model, recorded, continued, taken away ---
mkdir answers
answer answers/0.md <<'END'
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x)
END
answer answers/1.md <<'END'
import ctypes
import tempfile
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load

path = tempfile.gettempdir() + "/relu_one.cpp"
with open(path, "w") as file:
    file.write("""
extern "C" void relu(const float* from, float* to, long n) {
  undefined_name(from, to, n);
}
""")
relu = ctypes.CDLL(load(name="relu_one", sources=[path], is_python_module=False)).relu


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        relu(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(out.data_ptr()), ctypes.c_long(x.numel()))
        return out
END
answer answers/2.md <<'END'
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1
END
cat >relu.py <<'END'
import ctypes
import tempfile
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load

# knob CHUNK: 16384 65536
# Without torch/extension.h, which takes a minute where all cores are busy.
path = tempfile.gettempdir() + "/relu_two.cpp"
with open(path, "w") as file:
    file.write("""
extern "C" void relu(const float* from, float* to, long n, long chunk) {
#pragma omp parallel for schedule(static)
  for (long begin = 0; begin < n; begin += chunk) {
    const long end = begin + chunk < n ? begin + chunk : n;
#pragma omp simd
    for (long i = begin; i < end; ++i) to[i] = from[i] > 0 ? from[i] : 0;
  }
}
""")
relu = ctypes.CDLL(load(name="relu_two", sources=[path], is_python_module=False,
                        extra_cflags=["-O3", "-march=native", "-fopenmp"], extra_ldflags=["-fopenmp"])).relu


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        relu(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(out.data_ptr()), ctypes.c_long(x.numel()), ctypes.c_long(CHUNK))
        return out
END
answer answers/3.md <relu.py
serve answers
model="--policy openai:scripted --base-url $url"
expect 0 "best      turn 4 with" run --problem level1/19 --kind modelnew --turns 4 --tune 2 $model
cat out.txt >run.txt
episode=$(sed -n 's/^episode   \([0-9A-Z]*\).*/\1/p' run.txt)
for pattern in "1     refused" "2     compile_failed" "3     wrong" "4     measured"; do
  grep -q "$pattern" run.txt || fail "the table lacks \"$pattern\": $(cat run.txt)"
done
for file in 1 2 3 4 best; do [ -s "kevin-out/$episode/$file.py" ] || fail "no $file.py: $(ls kevin-out/*)"; done
grep -Eq '^CHUNK = (16384|65536)$' "kevin-out/$episode/best.py" || fail "the knob is not set: $(cat "kevin-out/$episode/best.py")"
last=$(ls answers/prompt-*.txt | sort -V | tail -1)
for pattern in "at least 90 % of the time of .forward." "| 1 | refused: kernels of its own do 0 % of the work" \
  "| 2 | compile_failed: .*error: .undefined_name. was not declared" "its result is incorrect" "| 3 | wrong" "marked .python."; do
  grep -q -- "$pattern" "$last" || fail "the last prompt lacks \"$pattern\": $(cat "$last")"
done
# Each attempt is told in full in the turn after it.
cat answers/prompt-*.txt >prompts.txt
for pattern in "Write the computation as kernels of your own (C++ with load_inline)" "extension relu_one does not compile"; do
  grep -q -- "$pattern" prompts.txt || fail "no prompt has \"$pattern\": $(cat prompts.txt)"
done
grep -q "rules open permits" prompts.txt && fail "the model is told of an option that is not its own"
grep -q "ninja:\|-DTORCH_EXTENSION_NAME" prompts.txt && fail "the model is told more than the compiler's lines: $(cat prompts.txt)"
expect 0 "Kernels of its own did" show "$episode" 4
grep -q "own kernels  *in cpp, [0-9]* % of the work" out.txt || fail "show lacks the share: $(cat out.txt)"
grep -q "CHUNK" out.txt || fail "show lacks the knob"
expect 0 "kind  *modelnew" show "$episode"
expect 0 "turn 5/5  " run --continue "$episode" --turns 1 --tune 2 $model
expect 0 "kevin-out/$episode/best.py" show "$episode"
expect 0 "" export "$episode" --best -o best.py
head -1 best.py | grep -q "^# Problem:" || fail "the exported file has no heading: $(head -3 best.py)"
expect 0 "measured" bench best.py --problem level1/19 --json
expect 2 "a kernel of kind modelnew cannot be written as CUDA C++" export "$episode" --best --as cu
expect 2 "a kernel of kind modelnew cannot be a PyTorch operator" export "$episode" --best --as torch-package -o pkg
for format in jsonl sft preference; do expect 0 "" export --format $format -o "$format.jsonl"; done
grep -q '"kind":"modelnew"' jsonl.jsonl || fail "no kind in the records"
expect 0 "" export --format kernelbench -o kb
grep -q "class ModelNew" kb/level_1_problem_19_sample_0_kernel.py || fail "no ModelNew in KernelBench's folder: $(ls kb)"
expect 0 "level1/19" report
expect 2 "no turns to learn from" train --dry-run --model . --algorithm sft --kind triton
expect 2 "config.json does not exist" train --dry-run --model . --algorithm sft --kind modelnew
"$python" -c "import sqlite3; db = sqlite3.connect('kevin.db'); db.execute('UPDATE evaluations SET rules_version = 1'); db.commit()"
expect 0 "" db rejudge kevin.db --json
grep -q '"outcome":"measured"' out.txt || fail "not judged again: $(cat out.txt err.txt)"

# --- from a file, with a memory, and by KernelBench's one-shot form ---
mkdir second && cp answers/2.md second/0.md
serve second
model="--policy openai:scripted --base-url $url"
expect 0 "turn 1/1  wrong" run --problem level1/19 --from best.py --turns 1 --memory kevin.db --db second.db $model
grep -q "You start from this kernel" second/prompt-1.txt || fail "the start is not shown: $(cat second/prompt-1.txt)"
expect 0 "turn 1/1  refused" run --problem level1/19 --kind modelnew --prompts kernelbench --rules kernelbench --turns 1 --db second.db $model
grep -q "Name your optimised architecture ModelNew" second/prompt-2.txt || fail "not KernelBench's form: $(cat second/prompt-2.txt)"
expect 2 "kernelbench asks for ModelNew" run --problem level1/19 --kind triton --prompts kernelbench --turns 1 --db second.db $model
expect 2 "use --size" run --problem level3/5 --kind modelnew --size small --turns 1 --db second.db $model
expect 2 "is not judged on\|needs a GPU\|no usable GPU\|not judged on device" run --problem level1/19 --kind ptx --device cpu --turns 1 --db second.db $model

# --- collect, joined; eval ---
serve answers
model="--policy openai:scripted --base-url $url"
expect 0 "solved 1/1\|1 episode\|level1/19" collect --suite level1/19 --kind modelnew --rules open --episodes 1 --turns 2 --db third.db --device cpu $model
run=$(sed -n 's/^run  *\([0-9A-Z]*\) .*/\1/p' out.txt | head -1)
expect 0 "$run" collect --join "$run" --db third.db
"$kevin" show --db third.db --json >ids.txt
expect 0 "level1/19" eval --suite level1/19 --kind modelnew --episodes 1 --turns 1 --db third.db --device cpu $model
expect 0 "kind  *modelnew, rules open" show "$(sed -n 's/.*"episode":"\([0-9A-Z]*\)".*/\1/p' ids.txt | tail -1)" --db third.db

# --- triton: verified by its interpreter ---
mkdir triton
answer triton/0.md <<'END'
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"BLOCK": 65536}), triton.Config({"BLOCK": 131072})], key=["n"])
@triton.jit
def relu_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.maximum(tl.load(x + at, mask=at < n), 0.0), mask=at < n)


def launch(x, out):
    relu_kernel[lambda meta: (triton.cdiv(B * N, meta["BLOCK"]),)](x, out, B * N)
END
if "$python" -c 'import triton' 2>/dev/null; then
  serve triton
  model="--policy openai:scripted --base-url $url"
  expect 0 "turn 1/1  measured" run --problem level1/19 --kind triton --turns 1 --tune 2 --db fourth.db $model
  grep -q "with configs = [01]" out.txt || fail "the choice among triton.Config is not told: $(cat out.txt)"
  episode=$(sed -n 's/^episode   \([0-9A-Z]*\).*/\1/p' out.txt)
  grep -q "configs=\[triton.Config" "kevin-out/$episode/1.py" || fail "no pinned list: $(cat "kevin-out/$episode/1.py")"
  [ "$(grep -o 'triton.Config' "kevin-out/$episode/1.py" | wc -l)" = 1 ] || fail "not pinned: $(cat "kevin-out/$episode/1.py")"
  expect 0 "" export "$episode" --turn 1 -o launch.py --db fourth.db
  expect 0 "measured" bench launch.py --kind triton --problem level1/19 --json
fi

# --- an imported module, judged as modelnew ---
cat >scaled.py <<'END'
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width, low=0.0):
        super().__init__()
        self.linear, self.low = nn.Linear(width, width), low

    def forward(self, x):
        return torch.clamp(self.linear(x), min=self.low)


def get_inputs():
    return [torch.randn(256, 64)]


def get_init_inputs():
    return [64, 0.25]
END
expect 0 "kevin run --problem mine/scaled" import scaled.py --no-admit
grep -q "^init = \[64, 0.25\]" data/kevin/problems/mine/scaled.toml || fail "no facts: $(cat data/kevin/problems/mine/scaled.toml)"
sed 's/class Model(/class ModelNew(/; /^def get/,$d' scaled.py >scaled_new.py
expect 0 '"outcome":"measured".*"rules":"open"' bench scaled_new.py --problem mine/scaled --json
sed 's/min=self.low/min=0.0/' scaled_new.py >scaled_wrong.py
expect 0 'inputs default, rules open, on cpu' bench scaled_wrong.py --problem mine/scaled
grep -q '^scaled_wrong.py  *wrong' out.txt || fail "not wrong: $(cat out.txt)"

[ $failures = 0 ] || { echo "$failures failures"; exit 1; }
echo "kinds in Python: ok"
