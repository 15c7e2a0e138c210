#!/bin/bash
# What Kevin says of GPUs that it cannot use: the thing, the reason, the next step, and exit code 3. Through a
# stand-in for the driver library (fake_driver.cc). Usage: gpu_messages_test.sh PATH-OF-KEVIN FAKE-DRIVER-FOLDER
set -u
kevin=$1
driver=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export XDG_DATA_HOME=$work/data XDG_CACHE_HOME=$work/cache
failures=0
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# with SETTINGS COMMAND...: under the stand-in, which is found before a real driver.
with() {
  local settings=$1
  shift
  env LD_LIBRARY_PATH="$driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" $settings "$kevin" "$@" </dev/null
}

# expect SETTINGS REASON NEXT: of `run` and `bench` with --device cuda:0, and of `doctor`.
expect() {
  local settings=$1 reason=$2 next=$3 errors rc command
  for command in "run --problem level1/19 --turns 1" "bench relu.cu --problem level1/19"; do
    errors=$(with "$settings" $command --device cuda:0 2>&1 >/dev/null)
    rc=$?
    [ "$rc" = 3 ] || fail "$settings: $command -> $rc, expected 3: $errors"
    grep -q -- "$reason" <<<"$errors" || fail "$settings: $command does not say \"$reason\": $errors"
    grep -q -- "next: .*$next" <<<"$errors" || fail "$settings: $command offers no next step: $errors"
  done
}
# doctor SETTINGS REASON FIX: a GPU that is there but of no use is a check that fails.
doctor() {
  local settings=$1 reason=$2 fix=$3 rc line
  with "$settings" doctor --json >doctor.txt 2>/dev/null
  rc=$?
  line=$(grep '"name":"gpu"' doctor.txt)
  [ "$rc" = 3 ] || fail "$settings: doctor -> $rc, expected 3"
  grep -q '"ok":false' <<<"$line" || fail "$settings: doctor finds nothing wrong: $line"
  grep -q -- "$reason" <<<"$line" || fail "$settings: doctor does not say \"$reason\": $line"
  grep -q -- "\"fix\":\".*$fix" <<<"$line" || fail "$settings: doctor does not say what to do: $line"
}

printf '__global__ void k(const float* x, float* out) {}\nvoid launch(const float* x, float* out) { k<<<1, 1>>>(x, out); }\n' >relu.cu
one=FAKE_DRIVER_GPUS=1

for mode in 1 2 3; do
  what=exclusive
  [ $mode = 2 ] && what=prohibited
  expect "$one FAKE_DRIVER_MODE=$mode" "cuda:0 (Fake 40) is in $what compute mode" "nvidia-smi -i 0 -c DEFAULT"
done
doctor "$one FAKE_DRIVER_MODE=3" "exclusive compute mode; Kevin needs two processes" "nvidia-smi -i 0 -c DEFAULT"
expect "$one FAKE_DRIVER_VERSION=12080" "its driver supports CUDA 12.8; Kevin's compiler needs 13.0" "driver 580 or newer"
doctor "$one FAKE_DRIVER_VERSION=12080" "driver for CUDA 12.8" "driver 580 or newer"
expect "$one FAKE_DRIVER_MAJOR=7" "compute capability 7.1; Kevin needs 8.0" "use a newer GPU, or use --device cpu"
export FAKE_DRIVER_NAME="Fake MIG 1g.18gb"
expect "$one" "cuda:0 (Fake MIG 1g.18gb) is a MIG instance" "nvidia-smi -mig 0"
doctor "$one" "Fake MIG 1g.18gb" "disable MIG"
unset FAKE_DRIVER_NAME
expect FAKE_DRIVER_GPUS=0 "cuda:0: the NVIDIA driver (CUDA 13.2) shows no device .*MIG" "kevin doctor"
expect FAKE_DRIVER_INIT=803 "cuda:0: the NVIDIA driver (CUDA 13.2) does not start: cuInit returns 803" "kevin doctor"

# Of several, one that is of use is enough: doctor says what the other lacks, and does not fail because of it.
with FAKE_DRIVER_GPUS=2 doctor >doctor.txt 2>/dev/null
grep -A1 '^- *gpu ' doctor.txt | grep -q "cuda:1 (Fake 41) is in exclusive compute mode" ||
  fail "doctor on a machine with a good and a bad GPU: $(grep -A1 ' gpu ' doctor.txt)"
errors=$(with "FAKE_DRIVER_GPUS=2" run --problem level1/19 --turns 1 --device cuda:1 2>&1 >/dev/null)
[ $? = 3 ] || fail "the second GPU is in exclusive mode: $errors"
errors=$(with "FAKE_DRIVER_GPUS=2" run --problem level1/19 --turns 1 --device cuda:2 2>&1 >/dev/null)
[ $? = 3 ] && grep -q "cuda:2: this machine has 2 GPUs" <<<"$errors" || fail "cuda:2 of 2: $errors"

# A library of that name that is no driver.
mkdir empty
echo 'extern "C" int nothing() { return 0; }' >nothing.cc
if ${CXX:-g++} -shared -fPIC -o empty/libcuda.so.1 nothing.cc 2>/dev/null; then
  driver=$work/empty
  expect "A=b" "cuda:0: libcuda.so.1 is not an NVIDIA driver: functions are missing" "kevin doctor"
fi

# No driver: exit code 3 where a GPU is asked for; doctor finds nothing wrong.
if ! [ -e /dev/nvidiactl ]; then
  driver=/nonexistent
  expect "A=b" "cuda:0: no NVIDIA driver (libcuda.so.1 was not found)" "kevin doctor"
fi
with "A=b" doctor --json 2>/dev/null | grep -q '"name":"gpu sandbox","ok":true,"found":"[1-9][0-9]* of ' ||
  fail "doctor does not show the GPU runner's sandbox"

[ "$failures" = 0 ] && echo "all passed"
exit $((failures > 0))
