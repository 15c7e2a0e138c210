#!/bin/bash
# `kevin optimize` of modules as they are deployed: deployed_package_test.sh PATH-OF-KEVIN FOLDER-OF-THIS-TEST FOLDER-OF-MODULES
# Needs a Python with torch, ninja and a C++ compiler; else it is skipped (exit code 77).
set -u
kevin=$1
here=$2
modules=$3
python=${KEVIN_PYTHON:-python3}
if ! "$python" -c 'import torch' 2>/dev/null || ! command -v ninja >/dev/null || ! command -v g++ >/dev/null; then
  echo "skipped: $python cannot import torch, or ninja or g++ is missing"
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export XDG_DATA_HOME=$work/data XDG_CACHE_HOME=$work/cache TORCH_EXTENSIONS_DIR=$work/extensions MAX_JOBS=1
failures=0
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }

for name in operator torch json; do
  "$kevin" optimize "$modules/cache.py" -o $name.py >out.txt 2>&1 </dev/null
  [ $? = 2 ] && grep -q "Python has a module .$name., which this name would hide" out.txt || fail "-o $name.py: $(cat out.txt)"
done

for module in bfloat16 cache chunks dynamic only_writes; do
  "$kevin" optimize "$modules/$module.py" --turns 1 --tune 0 --no-compile -o "fast_$module.py" --json >events.txt 2>err.txt </dev/null ||
    { fail "optimize $module: $(cat err.txt)"; continue; }
  if [ ! -e "fast_$module.py" ]; then  # a machine under load: what is not confirmed as faster is not written
    episode=$(grep -o '"episode":"[0-9A-Z]*"' events.txt | head -1 | cut -d'"' -f4)
    "$kevin" export "$episode" --turn 1 --as torch-package -o "fast_$module.py" >out.txt 2>&1 || fail "export of $module: $(cat out.txt err.txt)"
  fi
  "$python" "$here/deployed_check.py" "$module" "fast_$module" >out.txt 2>&1 || fail "the drop-in of $module: $(tail -20 out.txt)"
done

[ $failures = 0 ] && echo "all passed"
exit $((failures > 0))
