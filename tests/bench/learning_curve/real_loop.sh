#!/usr/bin/env bash
# A tiny model with random weights learns from real verdicts: records of a teacher's kernels, imitation, then
# GRPO and Think-Prune-Train online on a CPU. Results: README.md in this folder and tests/bench/RESULTS.md.
#
#   real_loop.sh PROGRAMS OUT        PROGRAMS: build/dev/bin; OUT must not exist
#
# GRPO_STEPS, TPT_STEPS, SAMPLES, SFT_STEPS, GRPO_RATE, TPT_RATE and SEED change the defaults below.
set -euo pipefail
if [ $# -ne 2 ] || [ -e "$2" ]; then
  sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
programs=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$2"
cd "$2"
# With such small products threads only wait for each other; and the judges need the cores.
export OMP_NUM_THREADS=1 OPENAI_API_KEY=none
kevin=$programs/kevin
seed=${SEED:-1}

mkfifo hold
"$programs/toy_teacher" . "$seed" <>hold >url &
teacher=$!
trap 'kill $teacher' EXIT
until [ -s url ]; do sleep 0.2; done
"$kevin" collect --suite level1/3,level1/7,level1/10,level1/11 --policy openai:teacher --base-url "$(cat url)" \
  --episodes 10 --turns 2 --size small --threads 1 --device cpu --db records.db --seed "$seed" 2>&1 | tee collect.log
"$kevin" train --algorithm sft --select all --model model --out sft --db records.db --steps "${SFT_STEPS:-300}" --batch 6 \
  --learning-rate 1.2e-3 --warmup 0.05 --final-fraction 0.01 --dtype float32 --seed "$seed" 2>&1 | tee sft.log

online=(--online --suite level1/3,level1/10 --problems-per-step 2 --samples "${SAMPLES:-6}" --turns 2 --model sft/model
  --dtype float32 --judge cpu --threads 1 --size small --max-tokens 330 --seed "$seed" --checkpoint-every 3
  --eval-suite level1/11 --eval-samples 2 --eval-turns 2 --test-suite level1/7)
"$kevin" train "${online[@]}" --algorithm grpo --out grpo --db grpo.db --steps "${GRPO_STEPS:-24}" --eval-every 8 \
  --learning-rate "${GRPO_RATE:-8e-5}" --max-grad-norm 0.5 --constant-tokens 300 2>&1 | tee grpo.log
"$kevin" train "${online[@]}" --algorithm tpt --out tpt --db tpt.db --steps "${TPT_STEPS:-8}" --eval-every 4 \
  --learning-rate "${TPT_RATE:-2e-4}" --updates 4 2>&1 | tee tpt.log
"$kevin" report --train grpo --train tpt
python3 "$here/draw.py" grpo.svg "GRPO from real verdicts" reward "mean score of a turn=grpo" "share of correct turns=grpo:correct"
python3 "$here/draw.py" tpt.svg "Think-Prune-Train from real verdicts" reward "mean score of a turn=tpt" \
  "share of correct turns=tpt:correct"
