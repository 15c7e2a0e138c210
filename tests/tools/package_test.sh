#!/bin/bash
# Exported PyTorch packages and `kevin optimize`, built and used: package_test.sh PATH-OF-KEVIN FOLDER-OF-THIS-TEST
# Needs a Python with torch, ninja and a C++ compiler; else it is skipped (exit code 77).
set -u
kevin=$1
here=$2
python=${KEVIN_PYTHON:-python3}
if ! "$python" -c 'import torch, setuptools' 2>/dev/null || ! command -v ninja >/dev/null || ! command -v g++ >/dev/null; then
  echo "skipped: $python cannot import torch, or ninja or g++ is missing"
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export XDG_DATA_HOME=$work/data XDG_CACHE_HOME=$work/cache TORCH_EXTENSIONS_DIR=$work/extensions MAX_JOBS=1
failures=0
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }

# --- Input that is refused, before anything is written ---
refused() { # WORDS ARGUMENTS...: exit code 2, and what is said
  local words=$1
  shift
  "$kevin" optimize "$@" >out.txt 2>&1 </dev/null
  local rc=$?
  [ $rc = 2 ] || fail "optimize $* -> $rc: $(cat out.txt)"
  grep -qF -- "$words" out.txt || fail "optimize $* does not say \"$words\": $(cat out.txt)"
}
bad=$here/optimize_modules
refused 'NameError: name '"'undefined_name'"' is not defined' "$bad/raises_at_import.py" --plan-only
refused 'needs constructor arguments: hidden, heads' "$bad/constructor_arguments.py" --plan-only
grep -qF -- '--init hidden=... --init heads=...' out.txt || fail "no way to give them: $(cat out.txt)"
refused 'it is not finished after 8 s, in phase: ' "$bad/never_ends.py" --plan-only --limit 8
refused 'if x.sum() > 0:' "$bad/depends_on_values.py" --plan-only
refused 'is a view of its input `x`' "$bad/aliases_input.py" --plan-only
refused 'needs CUDA' "$bad/on_cuda.py" --plan-only
refused 'it has several classes: First, Second' "$bad/two_classes.py" --plan-only
grep -qF 'name one: two_classes.py:Second' out.txt || fail "no way to name one: $(cat out.txt)"
refused 'it has no get_inputs()' "$bad/no_inputs.py" --plan-only
refused 'no place for the result' "$bad/first.py"
refused 'it does not end in .py' "$bad/first.py" -o result
echo precious >taken.py
refused 'it exists and was left as it is' "$bad/first.py" -o taken.py
[ "$(cat taken.py)" = precious ] || fail "taken.py was changed"
"$kevin" optimize "$bad/weights_of_20_gb.py" --plan-only >out.txt 2>&1 </dev/null
[ $? = 3 ] || fail "weights of 20 GB: $(cat out.txt)"
grep -q 'its tensors take 2[0-9.]* GB, and this machine has' out.txt || fail "weights of 20 GB: $(cat out.txt)"

# --- A plan, also with a constructor's and example arguments ---
"$python" -c 'import torch; torch.save([torch.randn(32, 64)], "x.pt")'
# In 16 bits a module is imported as it is deployed: what it asks for in float32 stays, and its result has the input's type.
"$kevin" optimize "$bad/keeps_types.py" --precision bf16 --plan-only >out.txt 2>&1 </dev/null || fail "keeps_types: $(cat out.txt)"
"$kevin" problems mine/keeps_types >out.txt 2>&1 || fail "keeps_types is not there: $(cat out.txt)"
for words in 'table   param   bfloat16' 'out     output  bfloat16' 'real16(x, 15)' 'real(x)'; do
  grep -qF -- "$words" out.txt || fail "keeps_types has no \"$words\": $(cat out.txt)"
done
"$kevin" optimize "$bad/own_type.py" --precision bf16 --plan-only >out.txt 2>&1 </dev/null || fail "own_type: $(cat out.txt)"
grep -qF 'parameter  weight float16 [64]' out.txt || fail "a module in another type of its own is cast: $(cat out.txt)"

"$kevin" optimize "$bad/constructor_arguments.py" --init hidden=64 --init heads=4 --example-inputs x.pt --plan-only \
  --json >out.txt 2>err.txt </dev/null || fail "--init: $(cat out.txt err.txt)"
grep -q '"event":"optimize".*"reason":"--plan-only"' out.txt || fail "the plan's event: $(cat out.txt)"
grep -qF 'would try  8 turns of kernels in C++ by policy search' err.txt || fail "the plan: $(cat err.txt)"
[ ! -e kevin.db ] || fail "--plan-only made a database"

# --- From the module to a drop-in, and a second time from where it ended ---
"$kevin" optimize "$bad/first.py" --turns 1 --tune 0 --no-compile -o fast.py --json >events.txt 2>err.txt </dev/null ||
  fail "optimize: $(cat err.txt)"
if tail -1 events.txt | grep -q '"output":null'; then
  # A machine under load: what is not confirmed as faster is not written. The kernel is the same.
  grep -q '^nothing was gained and nothing written: ' err.txt || fail "nothing gained: $(cat err.txt)"
  [ ! -e fast.py ] && [ ! -e fast_kernel ] || fail "a file was written where nothing was gained"
  "$kevin" export "$(grep -o '"episode":"[0-9A-Z]*"' events.txt | head -1 | cut -d'"' -f4)" --turn 1 --as torch-package -o fast.py >out.txt 2>&1 ||
    fail "export: $(cat out.txt)"
else
  tail -1 events.txt | grep -q '"event":"optimize","problem":"mine/first".*"speedup":[0-9].*"output":"fast.py","reason":null' ||
    fail "the last event: $(tail -1 events.txt)"
  grep -q '^gained     [0-9.]*x ([0-9.]*x to [0-9.]*x) over eager' err.txt || fail "the last line: $(cat err.txt)"
  grep -qF 'proof      outputs, state_dict, opcheck, gradients, fullgraph' err.txt || fail "the proof: $(cat err.txt)"
fi
"$kevin" optimize "$bad/first.py" --turns 1 --tune 0 --no-compile -o again.py >out.txt 2>&1 </dev/null || fail "again: $(cat out.txt)"
grep -q 'episode [0-9A-Z]* is complete' out.txt || fail "the second time began anew: $(cat out.txt)"
ls -a | grep -q '^\.kevin-' && fail "temporary folders are left: $(ls -a)"
"$python" "$here/drop_in_check.py" fast >out.txt 2>&1 || fail "the drop-in: $(tail -20 out.txt)"

# --- Any stored episode as an operator, built at import and by pip ---
"$kevin" export "$(grep -o '"episode":"[0-9A-Z]*"' events.txt | head -1 | cut -d'"' -f4)" --turn 1 --as torch-package -o own_operator.py \
  >out.txt 2>&1 || fail "export: $(cat out.txt)"
"$kevin" export "$(grep -o '"episode":"[0-9A-Z]*"' events.txt | head -1 | cut -d'"' -f4)" --turn 1 --as torch-package --inference-only \
  -o folder >out.txt 2>&1 || fail "export of a folder: $(cat out.txt)"
"$python" "$here/operator_check.py" own_operator >out.txt 2>&1 || fail "the operator: $(tail -20 out.txt)"
if "$python" -c 'import pip, wheel' 2>/dev/null; then
  "$python" -m pip install --no-build-isolation --no-deps --target installed ./folder >out.txt 2>&1 || fail "pip: $(tail -20 out.txt)"
else  # what pip runs
  (cd folder && "$python" setup.py -q build --build-lib ../installed) >out.txt 2>&1 || fail "setup.py: $(tail -20 out.txt)"
fi
(cd installed && env TORCH_EXTENSIONS_DIR=/nonexistent "$python" "$here/installed_check.py" kevin_mine_first) >out.txt 2>&1 ||
  fail "the installed package: $(tail -20 out.txt)"

# --- Imported problems are private ---
export OPENAI_API_KEY=none
remote="--policy openai:none --base-url http://198.51.100.1/v1 --retries 0"
"$kevin" run --problem mine/first $remote >out.txt 2>&1 </dev/null
[ $? = 2 ] || fail "a private problem in a pipe: $(cat out.txt)"
grep -qF 'mine/first is private. To http://198.51.100.1/v1 goes: the module'"'"'s source' out.txt || fail "privacy: $(cat out.txt)"
"$kevin" run --problem level1/19 $remote --timeout 1 >out.txt 2>&1 </dev/null
grep -q private out.txt && fail "level1/19 is no private problem: $(cat out.txt)"

[ $failures = 0 ] && echo "all passed"
exit $((failures > 0))
