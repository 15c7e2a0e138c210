#!/usr/bin/env bash
# All learning curves: the toy set and the whole loop from real verdicts, with three seeds each.
#
#   curves.sh PROGRAMS OUT        PROGRAMS: build/dev/bin; SEEDS="1 2 3" and the variables of real_loop.sh
#
# The same command goes on where it was stopped. Both parts print as they go.
set -euo pipefail
if [ $# -ne 2 ]; then
  sed -n '2,6s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
seeds=${SEEDS:-1 2 3}
mkdir -p "$2"
"$1/learning_curve" --seeds "${seeds// /,}" --steps "${TOY_STEPS:-240}" --out "$2/toy" | tee -a "$2/toy.log"
runs() { for seed in $seeds; do printf '%s/toy/%s-%s,' "$1" "$2" "$seed"; done | sed 's/,$//'; }
python3 "$here/draw.py" "$2/toy.svg" "A toy set: share of the reachable return" reward \
  "credit per turn=$(runs "$2" per-turn)" "all turns=$(runs "$2" all-turns)" \
  "per trajectory=$(runs "$2" per-trajectory)"
SEEDS=$seeds "$here/real_loop.sh" "$1" "$2/real"
