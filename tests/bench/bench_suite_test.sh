#!/bin/bash
# bench_suite on the CPU: progress, its end in time, final figures after a signal: bench_suite_test.sh BENCH_SUITE
set -u
bench=$1
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0
check() {   # check WHAT COMMAND...
  local what=$1
  shift
  "$@" || { echo "FAILED: $what"; failed=1; }
}
arguments=(--device cpu --suite level1/19,level1/23 --parallel 2 --every 2)

# It begins to count when evaluator and compiler are there; that takes a few seconds.
"$bench" "${arguments[@]}" --minutes 0.5 >"$log" 2>&1
status=$?
check "it ends by itself" test $status = 0
check "with progress on the way" test "$(grep -c '^[0-9]* s: .* verdicts' "$log")" -ge 5
check "and final figures" grep -q '^distinct candidates with a fresh verdict: [1-9]' "$log"
check "by outcome" grep -qE '^outcomes: [a-z_]+ [1-9]' "$log"
seconds=$(sed -n 's/^2 at once, \([0-9]*\) s.*/\1/p' "$log")
check "over its time" test "$seconds" -ge 30 -a "$seconds" -le 31

# Deep networks: their turns are longer than the time.
start=$(date +%s)
timeout 120 "$bench" --device cpu --suite level3/1,level3/4 --parallel 2 --every 2 --minutes 0.1 >"$log.long" 2>&1
took=$(($(date +%s) - start - 2 * $(grep -c preparing "$log.long")))
check "within 5 s of its time whatever runs (took $took s)" test $took -le $((6 + 5 + 3))
check "with final figures too" grep -q '^distinct candidates' "$log.long"
rm -f "$log.long"

"$bench" "${arguments[@]}" --minutes 5 >"$log" 2>&1 &
process=$!
for _ in $(seq 300); do
  grep -q 's: [1-9]' "$log" && break
  sleep 0.2
done
kill -TERM $process
for _ in $(seq 60); do
  kill -0 $process 2>/dev/null || break
  sleep 0.1
done
check "a signal ends it within 6 s" test ! -e /proc/$process
wait $process
check "with the exit code of an interrupt" test $? = 130
check "and final figures after it" grep -q '^distinct candidates with a fresh verdict: [1-9]' "$log"

[ $failed = 0 ] && echo "all tests of bench_suite passed" || cat "$log"
exit $failed
