#!/bin/bash
# What scripts rely on, without torch or a compiler: exit codes, messages on stderr, nothing left behind.
# Usage: cli_test.sh PATH-OF-KEVIN
set -u
kevin=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0

# expect CODE PATTERN ARGUMENTS...: the exit code, and a pattern on stderr ("" for none expected).
expect() {
  local code=$1 pattern=$2
  shift 2
  local errors rc
  errors=$("$kevin" "$@" 2>&1 >out.txt </dev/null)
  rc=$?
  if [ "$rc" != "$code" ] || ! grep -q -- "$pattern" <<<"$errors" || { [ -z "$pattern" ] && [ -n "$errors" ]; }; then
    echo "FAILED: kevin $* -> $rc (expected $code), stderr: $errors"
    failures=$((failures + 1))
  fi
}

expect 0 "" --help
grep -q "Examples:" out.txt || { echo "FAILED: --help has no examples"; failures=$((failures + 1)); }
for command in run bench problems show export doctor; do
  expect 0 "" $command --help
  grep -q "Examples:" out.txt || { echo "FAILED: $command --help has no examples"; failures=$((failures + 1)); }
done
expect 0 "" --version
grep -q "^kevin [0-9]" out.txt || { echo "FAILED: --version"; failures=$((failures + 1)); }
expect 2 "Usage: kevin"
expect 2 "nonsense" nonsense
expect 2 "no problem given" run
expect 2 "did you mean level1/19" run --problem level1/199
expect 2 "not in range" run --problem level1/19 --turns 0
expect 2 "excludes" run --continue 01J --seed 1
expect 2 "no such policy" run --problem level1/19 --policy gpt
expect 2 "no size 'huge'" run --problem level1/19 --size huge
expect 2 "No such file" run --problem level1/19 --from missing.cpp
expect 2 "cannot write kernels there" run --problem level1/19 --out /dev/null
expect 2 "next: " run --problem level1/19 --db missing/kevin.db
rm -f kevin.db*
expect 2 "next: " run --continue 01J
expect 2 "unknown problem" run --problem level9/9
[ -e kevin.db ] && { echo "FAILED: a wrong request left a database"; failures=$((failures + 1)); }
echo "not a database, long enough to be looked at as one" >junk.db
expect 2 "not a database" run --problem level1/19 --db junk.db

[ "$failures" = 0 ] && echo "all passed"
exit $((failures > 0))
