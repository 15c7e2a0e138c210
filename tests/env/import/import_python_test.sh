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

# Functions of one's own: refused with words, or imported with what is wanted in the problem's file.
cat >ops.py <<'END'
import torch

def scaled_sum(a, b):
    return torch.softmax(a, 1) + b

def norm(x, weight, eps=1e-6, *, scale=2.0):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight * scale

def pick(table, index):
    return table[index] * 2

def halves(x):
    a, b = x.chunk(2, -1)
    return {"gated": torch.sigmoid(a) * b, "more": (a.amax(-1), b.amin(-1))}

def gated(x, gates, residual=None, *, mode="a"):
    a, b = x
    return torch.sigmoid(gates["a"]) * (a + b) if mode == "a" else a

def halved(x, most):
    while x.abs().max() > most:
        x = x / 2
    return x
END
"$python" - <<'END'
import torch
torch.save([torch.randn(64, 32), torch.rand(64, 32)], "two.pt")
torch.save({"x": torch.randn(64, 32), "weight": torch.rand(32), "scale": 3.0}, "named.pt")
torch.save([torch.randn(100, 32), torch.tensor([[0, 99, 7], [2, 4, 6]])], "index.pt")
torch.save([torch.randn(100, 32), torch.tensor([1, 2]).int()], "int32.pt")
torch.save(torch.randn(64, 32), "one.pt")
torch.save([torch.randn(64, 32), 1.0], "number.pt")
torch.save([torch.randn(64, 32).bfloat16()], "bfloat16.pt")
torch.save([torch.randn(64, 32).double()], "double.pt")
torch.save([(torch.randn(8, 8), torch.randn(8, 8).t()), {"a": torch.randn(8, 8)}], "nested.pt")
torch.save({"x": torch.randn(64, 32), "wait": torch.rand(32)}, "misspelt.pt")
END
# own NAME EXAMPLES WORDS [PATTERN]: what is said, and a pattern in the problem's file (without one: refused).
own() {
  "$kevin" import --function "ops.py:$1" --example-inputs "$2.pt" --no-admit >out.txt 2>&1 </dev/null
  local rc=$?
  grep -qF -- "$3" out.txt || fail "--function $1 with $2 does not say \"$3\": $(cat out.txt)"
  [ $rc = $(($# == 3 ? 2 : 0)) ] || fail "--function $1 with $2 -> $rc"
  [ $# = 3 ] || grep -q -- "$4" "data/kevin/problems/mine/$1.toml" || fail "--function $1 lacks \"$4\": $(cat "data/kevin/problems/mine/$1.toml")"
}
own scaled_sum two "kevin run --problem mine/scaled_sum" 'torch.softmax(a, 1)'
own norm named "constants of the problem: eps = 1e-06, scale = 3.0" 'torch.mul(mul_1, 3.0)'
# Shapes of a size set: compared with the function, or why not.
shape() {
  "$kevin" import --function ops.py:scaled_sum --example-inputs two.pt --no-admit "$@" >out.txt 2>&1 </dev/null
}
shape --shape mine:N0=100,N1=48:2.5 --shape mine:N0=7 || fail "--shape: $(cat out.txt)"
"$kevin" problems mine/scaled_sum | grep -qF 'mine  mine/1 (weight 2.5), mine/2 (weight 1)' || fail "no size set: $("$kevin" problems mine/scaled_sum)"
shape --shape mine:N0=7,K=3 && fail "--shape with an unknown size is taken"
grep -qF '`K` is no size of this module that may vary' out.txt || fail "--shape K says $(cat out.txt)"
shape --shape small:N0=7 && fail "--shape small is taken"
shape --shape mine:N0=7:-1 && fail "--shape with a weight below 0 is taken"
own norm misspelt "(x, wait) are no arguments of norm(x, weight, eps=1e-06, *, scale=2.0)"
own norm one "missing a required argument: 'weight'"
own pick index '`index` is drawn from 0 to 99' '^distribution = "uniform01"'
own pick int32 "dtype torch.int32, which problems do not have"
own halves one "kevin run --problem mine/halves" '^name = "out2"'
own halves bfloat16 "kevin run --problem mine/halves" '^dtype = "bfloat16"'
own halves double "make it float32, float16 or bfloat16"
own gated nested "kevin run --problem mine/gated" 'def forward(x_0, x_1, gates_a)'
own halved number "(ops.py, line 21: while x.abs().max() > most:)"
own halves missing "there is no such file"
own half one "it has scaled_sum, norm, pick, halves, gated, halved"

# Names of a user's files are their own, also where the importer has one of the same name.
mkdir neighbours
echo 'factor = 3.0' >neighbours/graph.py
cat >neighbours/tripled.py <<'END'
import graph
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x) * graph.factor


def get_inputs():
    return [torch.randn(8, 8)]
END
"$kevin" import neighbours/tripled.py --no-admit >out.txt 2>&1 || fail "a neighbour called graph.py: $(cat out.txt)"

# A file of a package imports relatively, also from the folder above; its problem says by which name.
mkdir -p project/models/blocks
touch project/models/__init__.py project/models/blocks/__init__.py
echo 'factor = 3.0' >project/models/common.py
sed 's/^import graph/from ..common import factor/; s/graph.factor/factor/' neighbours/tripled.py >project/models/blocks/my-net.py
"$kevin" import project/models/blocks/my-net.py --no-admit >out.txt 2>&1 || fail "a file of a package: $(cat out.txt)"
grep -q '^import = "models.blocks.my-net"' data/kevin/problems/mine/my-net.toml || fail "the name of its module: $(grep import data/kevin/problems/mine/my-net.toml)"
mkdir bad-name
cp project/models/blocks/my-net.py bad-name/net.py
"$kevin" import bad-name/net.py --no-admit >out.txt 2>&1 && fail "a relative import out of a folder that is no package"
grep -qF 'its folder `bad-name` cannot be a package' out.txt || fail "no word about the folder: $(cat out.txt)"
cp neighbours/tripled.py class.py
sed -i 's/graph/missing_neighbour/' class.py
"$kevin" import class.py --no-admit >out.txt 2>&1 && fail "a file without its neighbour"
grep -qF 'it imports `missing_neighbour`, which this Python does not have' out.txt || fail "no word about the neighbour: $(cat out.txt)"

# A size that varies, by the command.
"$kevin" import --function ops.py:scaled_sum --example-inputs two.pt --no-admit --dynamic b.1=1..100 >out.txt 2>&1 || fail "--dynamic: $(cat out.txt)"
"$kevin" problems mine/scaled_sum | grep -q 'dynamic  dynamic/1 (weight 1), dynamic/2' || fail "no set of shapes: $("$kevin" problems mine/scaled_sum)"
grep -q '^N1 = 100' data/kevin/problems/mine/scaled_sum.toml || fail "the end of the range is no shape: $(cat data/kevin/problems/mine/scaled_sum.toml)"
"$kevin" import --function ops.py:scaled_sum --example-inputs two.pt --no-admit --dynamic c.1=1..100 >out.txt 2>&1 && fail "--dynamic of no input is taken"
grep -q 'no size of this module and no dimension of an input' out.txt || fail "--dynamic c.1 says $(cat out.txt)"

# The sandbox: what a file cannot read, and how it says so.
mkdir kept elsewhere
echo 3.0 >elsewhere/factor.txt
cat >kept/reads.py <<'END'
import torch

factor = float(open("FACTOR").read())


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x) * factor


def get_inputs():
    return [torch.randn(8, 8)]
END
sed -i "s|FACTOR|$work/elsewhere/factor.txt|" kept/reads.py
"$kevin" import kept/reads.py --no-admit >out.txt 2>&1 && fail "a file outside its folder is read"
grep -q "No such file or directory" out.txt && grep -q -- "--allow-read PATH shows it a file" out.txt || fail "no word about --allow-read: $(cat out.txt)"
"$kevin" import kept/reads.py --no-admit --allow-read elsewhere >out.txt 2>&1 || fail "--allow-read: $(cat out.txt)"
"$kevin" import kept/reads.py --no-admit --trust >out.txt 2>&1 || fail "--trust: $(cat out.txt)"
# A file in /tmp itself is shown alone, without what others keep there.
lone=$(mktemp /tmp/kevin_lone_XXXXXX.py)
beside=$(mktemp /tmp/kevin_beside_XXXXXX)
echo 2 >"$beside"
sed 's|float(.*)|2.0|' kept/reads.py >"$lone"
"$kevin" import "$lone" --no-admit >out.txt 2>&1 || fail "a file in /tmp: $(cat out.txt)"
sed "s|open(\".*\")|open(\"$beside\")|" kept/reads.py >"$lone"
"$kevin" import "$lone" --no-admit >out.txt 2>&1 && fail "a file beside one in /tmp is read"
grep -q "No such file or directory: '$beside'" out.txt || fail "no word about the file beside: $(cat out.txt)"
rm -f "$lone" "$beside"
cat >kept/connects.py <<'END'
import socket

import torch

socket.create_connection(("127.0.0.1", 9), 1)
END
"$kevin" import kept/connects.py --no-admit >out.txt 2>&1
grep -q "Operation not permitted" out.txt || fail "a connection is not refused by the sandbox: $(cat out.txt)"

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
