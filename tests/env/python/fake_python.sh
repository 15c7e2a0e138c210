#!/bin/bash
# A stand-in for a Python with torch: fake_python.sh SCRIPT [--version]. PYTHON_FAKE says what it does; what it was
# called with goes to $FAKE_PYTHON_LOG. A sandbox hides all but the first (PYTHON*).
echo "called ${2-} $CUDA_DEVICE_ORDER ${LD_LIBRARY_PATH-none}" >>"${FAKE_PYTHON_LOG:-/dev/null}"
if [ "${2-}" = --version ]; then
  case ${PYTHON_FAKE-} in
    no-torch) echo '{"error": "this Python has no torch", "machine": true}' ;;
    cpu-torch) echo '{"torch": "2.11.0+cpu", "cuda": null}' ;;
    no-python) echo "no such option" >&2; exit 2 ;;
    nonsense) echo 'Python 2.7' ;;
    *) echo "{\"torch\": \"${FAKE_TORCH:-2.11.0+cu130}\", \"cuda\": \"13.0\", \"folders\": [\"$(dirname "$0")\"]}" ;;
  esac
  exit
fi
read -r job
echo "$job" >>"${FAKE_PYTHON_LOG:-/dev/null}"
echo '{"phase": "compile"}'
case ${PYTHON_FAKE-} in
  failure) echo '{"error": "torch.compile fails: Unsupported: it", "machine": false}'; exit ;;
  no-gpu) echo "{\"error\": \"Python's torch cannot use a GPU\", \"machine\": true}"; exit ;;
  crash) printf 'first\nlast words\n' >&2; kill -SEGV $$; exit 9 ;;  # the first process of a namespace ignores its own signals
  hang) sleep 60 & echo $! >>"$FAKE_PYTHON_LOG"; wait; exit ;;
  loud) head -c 1000000 /dev/zero | tr '\0' x >&2 ;;
  half) echo '{"torch": "2.11.0", "eager_us": 3}'; exit ;;
  zero) echo '{"eager_us": 0, "compiled_us": 0, "compile_s": 1, "max_error": 0, "pairs": 20}'; exit ;;
esac
echo '{"phase": "measure"}'
read -r go
flock --nonblock --shared "${KEVIN_LOCK_DIRECTORY:-/tmp/kevin-locks-$(id -u)}/gpu-${FAKE_BUS:-none}.lock" true; free=$?
echo "$go, lock held: $free" >>"${FAKE_PYTHON_LOG:-/dev/null}"
echo '{"torch": "2.11.0+cu130", "device": "Fake", "eager_us": 12.5, "compiled_us": 10.0, "compile_s": 21.5, "pairs": 40, "max_error": 1e-06}'
