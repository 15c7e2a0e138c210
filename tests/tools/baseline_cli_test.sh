#!/bin/bash
# `kevin baseline` on a made-up machine: baseline_cli_test.sh PATH-OF-KEVIN FAKE-PYTHON FOLDER-OF-THE-FAKE-DRIVER
set -u
kevin=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export XDG_DATA_HOME=$work/data XDG_CACHE_HOME=$work/cache KEVIN_PYTHON=$2 PYTHON_FAKE=
failures=0
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }

# expect CODE PATTERN ARGUMENTS...: the exit code, and a pattern in what is printed.
expect() {
  local code=$1 pattern=$2
  shift 2
  "$kevin" "$@" >out.txt 2>err.txt </dev/null
  local rc=$?
  [ $rc = "$code" ] && cat out.txt err.txt | grep -q -- "$pattern" || fail "kevin $* -> $rc (expected $code): $(cat out.txt err.txt)"
}
stored() { stat -c '%n %i %y' cache/kevin/baselines/*.json; }  # each measurement writes a file anew
files() { ls cache/kevin/baselines | wc -l; }

expect 0 "Examples:" baseline --help
expect 2 "no problem given" baseline
expect 2 "no such problems" baseline --suite level9
expect 2 "did you mean level1/99" baseline --problem level1/199
expect 2 "no size 'huge'" baseline --problem level1/19 --size huge
expect 2 "not auto, cpu or cuda:N" baseline --problem level1/19 --device xpu
[ -e /dev/nvidiactl ] || expect 3 "cuda:0: " baseline --problem level1/19 --device cuda:0

export LD_LIBRARY_PATH=$3
expect 3 "this machine has 2 GPUs" baseline --problem level1/19 --device cuda:7
KEVIN_PYTHON=no-such-python expect 3 "there is no no-such-python" baseline --problem level1/19
PYTHON_FAKE=no-gpu expect 3 "cannot use a GPU" baseline --problem level1/19
expect 0 "level1/19  full  Fake 40  2.11.0+cu130  no    fp32       default  12.5      10.0        1.25x" baseline --problem level1/19
before=$(stored)
expect 0 "1.25x" baseline --problem level1/19
[ "$(stored)" = "$before" ] || fail "what is stored was measured again"
expect 0 "1.25x" baseline --problem level1/19 --again
[ "$(stored)" != "$before" ] && [ "$(files)" = 1 ] || fail "--again did not measure"
expect 0 '"event":"baseline","problem":"level1/19","size":"full","tf32":false,"device":"Fake 40"' \
  baseline --problem level1/19 level1/20 --json
[ "$(wc -l <out.txt)" = 2 ] || fail "--json prints one line a problem: $(cat out.txt)"
expect 0 "no    bf16       default  12.5" baseline --problem level1/19 --precision bf16
[ "$(files)" = 3 ] || fail "bf16 was not measured apart from fp32"
expect 0 "no    fp32       max-autotune  12.5" baseline --problem level1/19 --mode max-autotune
grep -q "torch.compile 2.11.0+cu130 (max-autotune) of" err.txt || fail "the first line does not name the mode: $(cat err.txt)"
[ "$(files)" = 4 ] || fail "max-autotune was not measured apart from the default"
expect 0 '"mode":"max-autotune"' baseline --problem level1/19 --mode max-autotune --json
expect 2 "max-autotune" baseline --problem level1/19 --mode fastest
expect 2 "on a CPU eager alone" baseline --problem level1/19 --mode max-autotune --device cpu
expect 2 "about float32 products" baseline --problem level1/19 --precision bf16 --tf32 reference
PYTHON_FAKE=failure expect 0 "Unsupported: it" baseline --problem level1/21
before=$(stored)
expect 0 "Unsupported: it" baseline --problem level1/21
[ "$(stored)" = "$before" ] || fail "a stored failure was tried again"
PYTHON_FAKE=crash expect 4 "last words" baseline --problem level1/22 level1/23
grep -q "level1/23 .*last words" out.txt || fail "one broken problem ended the suite"
expect 0 "^level1/22 .*1.25x" baseline --problem level1/22   # a crash is not stored
expect 0 "Baselines (kevin baseline)" problems level1/19
LD_LIBRARY_PATH= expect 0 "1.25x" problems level1/19
[ "$(cat cache/kevin/baselines/*.json | grep -c '"compiled_us"')" = "$(ls cache/kevin/baselines | wc -l)" ] ||
  fail "odd files in the cache: $(ls cache/kevin/baselines)"

[ "$failures" = 0 ] && echo "all passed"
exit $((failures > 0))
