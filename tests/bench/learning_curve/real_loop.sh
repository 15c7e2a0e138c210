#!/usr/bin/env bash
# A tiny model with random weights learns from real verdicts: records of a teacher's kernels, imitation, then
# GRPO and Think-Prune-Train online on a CPU. Results: README.md in this folder and tests/bench/RESULTS.md.
#
#   real_loop.sh PROGRAMS OUT        PROGRAMS: build/dev/bin; each seed has a folder OUT/seed-N
#
# The same command goes on where it was stopped: parts that are done are left out, training resumes from its newest
# checkpoint. SEEDS ("1 2 3"), GRPO_STEPS, TPT_STEPS, SAMPLES, SFT_STEPS, GRPO_RATE and TPT_RATE change the defaults below.
set -euo pipefail
if [ $# -ne 2 ]; then
  sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
programs=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$2"
cd "$2"
out=$PWD
# With such small products threads only wait for each other; and the judges need the cores.
export OMP_NUM_THREADS=1 OPENAI_API_KEY=none
kevin=$programs/kevin
seeds=${SEEDS:-1 2 3}

# part NAME COMMAND...: once; its output is shown and added to NAME.log
part() {
  local name=$1
  shift
  [ ! -e "$name.done" ] || return 0
  echo "== $(date -u +%H:%M:%S) seed $seed: $name"
  "$@" 2>&1 | tee -a "$name.log"
  touch "$name.done"
}

collect() {
  rm -rf hold url model
  mkfifo hold
  "$programs/toy_teacher" . "$seed" <>hold >url &
  teacher=$!
  trap 'kill "$teacher" 2>/dev/null || true' EXIT
  until [ -s url ]; do sleep 0.2; done
  "$kevin" collect --suite level1/3,level1/7,level1/10,level1/11 --policy openai:teacher --base-url "$(cat url)" \
    --episodes 10 --turns 2 --size small --threads 1 --device cpu --db records.db --seed "$seed"
  kill "$teacher"
}

# train OUT OPTIONS...
train() {
  local run=$1 resume=()
  shift
  [ ! -e "$run" ] || resume=(--resume)
  "$kevin" train --model "$model" --dtype float32 --seed "$seed" --out "$run" "${resume[@]}" "$@"
}

for seed in $seeds; do
  mkdir -p "$out/seed-$seed"
  cd "$out/seed-$seed"
  part collect collect
  model=model
  part sft train sft --algorithm sft --select all --db records.db --steps "${SFT_STEPS:-300}" --batch 6 \
    --learning-rate 1.2e-3 --warmup 0.05 --final-fraction 0.01
  model=sft/model
  online=(--online --suite level1/3,level1/10 --problems-per-step 2 --samples "${SAMPLES:-6}" --turns 2
    --judge cpu --threads 1 --size small --max-tokens 330 --checkpoint-every 3
    --eval-suite level1/11 --eval-samples 2 --eval-turns 2 --test-suite level1/7)
  part grpo train grpo "${online[@]}" --algorithm grpo --db grpo.db --steps "${GRPO_STEPS:-24}" --eval-every 8 \
    --learning-rate "${GRPO_RATE:-8e-5}" --max-grad-norm 0.5 --constant-tokens 300 --keep-cut-off
  part tpt train tpt "${online[@]}" --algorithm tpt --db tpt.db --steps "${TPT_STEPS:-8}" --eval-every 4 \
    --learning-rate "${TPT_RATE:-2e-4}" --updates 4
  "$kevin" report --train grpo --train tpt
done
cd "$out"
runs() { for seed in $seeds; do printf 'seed-%s/%s%s,' "$seed" "$1" "$2"; done | sed 's/,$//'; }
python3 "$here/draw.py" grpo.svg "GRPO from real verdicts" reward "mean score of a turn=$(runs grpo "")" \
  "share of correct turns=$(runs grpo :correct)"
python3 "$here/draw.py" tpt.svg "Think-Prune-Train from real verdicts" reward "mean score of a turn=$(runs tpt "")" \
  "share of correct turns=$(runs tpt :correct)"
