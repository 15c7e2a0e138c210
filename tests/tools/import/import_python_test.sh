#!/bin/bash
# `kevin import` with a real Python: import_python_test.sh PATH-OF-KEVIN FOLDER-OF-THIS-TEST
# Needs a python3 (or KEVIN_PYTHON) that can import torch; else it is skipped (exit code 77).
set -u
kevin=$1
here=$2
python=${KEVIN_PYTHON:-python3}
if ! "$python" -c 'import torch' 2>/dev/null; then
  echo "skipped: $python cannot import torch"
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export XDG_DATA_HOME=$work/data XDG_CACHE_HOME=$work/cache
failures=0
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }

# What the files of modules/ must come to: refused ones say why in their first line, "# REFUSED: words".
"$kevin" import "$here/modules" --suite m --no-admit --json >out.txt 2>err.txt </dev/null || fail "exit code $?: $(cat err.txt)"
for file in "$here"/modules/*.py; do
  name=$(basename "$file" .py)
  line=$(grep "\"id\":\"m/$name\"" out.txt)
  words=$(sed -n '1s/^# REFUSED: //p' "$file")
  if [ -n "$words" ]; then
    case $line in
      *'"imported":false'*"$words"*) ;;
      *) fail "$name is not refused for \"$words\": $line" ;;
    esac
    continue
  fi
  case $line in *'"imported":true'*) ;; *) fail "$name: $line"; continue ;; esac
  case $line in *'not compared'*) fail "$name was not compared: $line" ;; esac
  sed -n 's/^# HAS: //p' "$file" >wanted
  while IFS= read -r pattern; do
    grep -q -- "$pattern" "data/kevin/problems/m/$name.toml" || fail "$name lacks \"$pattern\": $(grep -v '^values' "data/kevin/problems/m/$name.toml")"
  done <wanted
done

cat >ops.py <<'END'
import torch

def scaled_sum(a, b):
    return torch.softmax(a, 1) + b
END
"$python" -c 'import torch; torch.save([torch.randn(64, 32), torch.rand(64, 32)], "examples.pt")'
"$kevin" import --function ops.py:scaled_sum --example-inputs examples.pt --no-admit >out.txt 2>err.txt || fail "--function: $(cat err.txt)"
"$kevin" problems mine/scaled_sum | grep -q "torch.softmax(a, 1)" || fail "--function: no softmax"
"$kevin" import --function ops.py:missing --example-inputs examples.pt 2>&1 | grep -q "has no .missing" || fail "--function with a wrong name"
"$kevin" import "$here/modules/dropout.py" --eval --no-admit 2>&1 | grep -q "mine/dropout" || fail "--eval"
"$kevin" import "$here/modules/linear.py" --small rows=8 --no-admit >/dev/null 2>&1
"$kevin" problems mine/linear --json | grep -q '"small"' || fail "--small"

# From a file to a verdict with no kernel of one's own.
if [ -x "$(dirname "$kevin")/kevin-evaluator" ]; then
  "$kevin" import "$here/modules/relu.py" >out.txt 2>err.txt || fail "relu: $(cat err.txt)"
  grep -q "on harder inputs (on its own: a copy of an input passed" err.txt || fail "relu's inputs were not made harder: $(cat err.txt)"
  KEVIN_PYTHON= "$kevin" run --problem mine/relu --turns 2 --policy search --db run.db >out.txt 2>&1 || fail "run: $(cat out.txt)"
  grep -q measured out.txt || fail "no turn was measured: $(cat out.txt)"
fi

[ "$failures" = 0 ] && echo "all passed"
exit $((failures > 0))
