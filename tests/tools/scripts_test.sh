#!/bin/bash
# Tests tools/kevin and tools/setup.sh on a made-up checkout and machine: scripts_test.sh SOURCE_TREE SCRATCH_FOLDER
# Nothing is installed, fetched or built: every outside program is a stub that writes down its call.
set -u
source=$1
work=$2
failed=0

check() {   # check WHAT COMMAND...
  local what=$1
  shift
  "$@" || { echo "FAILED: $what"; failed=1; }
}
same() { [ "$1" = "$2" ] || { printf '  got:  %s\n  want: %s\n' "$1" "$2"; return 1; }; }
contains() { [[ $1 == *"$2"* ]] || { printf '  got:  %s\n  want: ... %s ...\n' "$1" "$2"; return 1; }; }

make_checkout() {
  rm -rf "$work"
  mkdir -p "$work/c"/{agent,env,policies,prompts,tools,trajectories,build/dev/bin,torch/lib,torch/include/torch/headeronly}
  touch "$work/c"/{CMakeLists.txt,CMakePresets.json,torch/lib/libtorch_cpu.so}
  printf '#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 11\n' >"$work/c/torch/include/torch/headeronly/version.h"
  cp "$source/tools/kevin" "$source/tools/setup.sh" "$work/c/tools"
  stub_at "$work/c/build/dev/bin/kevin" 'echo "kevin <$1> <${2-}>"; exit 5'
}
stub_at() { printf '#!/bin/sh\n%s\n' "$2" >"$1"; chmod +x "$1"; }

# --- tools/kevin: when it is quick, when it sets up ---
make_checkout
root=$(readlink -f "$work/c")
stub_at "$root/tools/setup.sh" 'echo "setup $*"; exit ${SETUP_STATUS:-0}'
ready() { printf '%s\n' "$root/torch" "$root KEVIN_TORCH=" yes "layout 2" >"$root/build/dev/kevin-ready"; }
unset KEVIN_TORCH KEVIN_PYTHON

out=$("$root/tools/kevin" 2>/dev/null)
check "without a stamp, set-up comes first" contains "$("$root/tools/kevin" 2>&1)" "setup default"
check "set-up prints to stderr only" same "$out" "kevin <> <>"
ready
out=$("$root/tools/kevin" "a  b" c 2>&1)
status=$?
check "with a stamp, the program starts at once, its arguments whole" same "$out" "kevin <a  b> <c>"
check "its exit code comes through" same $status 5
ln -s "$root/tools/kevin" "$work/link"
check "it works through a link, from another folder" same "$(cd / && "$work/link" x 2>&1)" "kevin <x> <>"
check "another KEVIN_TORCH sets up again" contains "$(KEVIN_TORCH=/t "$root/tools/kevin" 2>&1)" "setup"
sleep 0.02
touch "$root/env/new.cc"
check "a newer source sets up again" contains "$("$root/tools/kevin" 2>&1)" "setup"
out=$(SETUP_STATUS=3 "$root/tools/kevin" 2>&1)
check "a failed set-up ends it with that code" same "$? $out" "3 setup default"
sleep 0.02
ready
rm "$root/torch/lib/libtorch_cpu.so"
check "a vanished torch sets up again" contains "$("$root/tools/kevin" 2>&1)" "setup"

# --- tools/setup.sh: on a machine made of stubs ---
make_machine() {   # a PATH on which only harmless programs and stubs are found
  make_checkout
  bin=$work/bin
  mkdir -p "$bin"
  for program in bash sh env dirname readlink mkdir flock sort head sed cut cat grep tail tr cp mv rm cmp awk df \
    nproc printf id sleep true touch; do
    ln -s "$(type -P $program)" "$bin/$program"
  done
  stub_at "$bin/g++" 'echo 12'
  stub_at "$bin/cmake" 'case $1 in --version) echo "cmake version 3.25.1";; --preset) mkdir -p build/dev; echo "cmake $*" >>'"$work"'/calls; touch build/dev/build.ninja;; *) echo "cmake $*" >>'"$work"'/calls;; esac'
  stub_at "$bin/dpkg" 'exit 0'
  stub_at "$bin/dpkg-query" 'echo "ii "'
  stub_at "$bin/apt-cache" 'exit 0'
  stub_at "$bin/apt-get" 'echo "apt-get $*" >>'"$work/calls"
  stub_at "$bin/nvidia-smi" 'exit 9'
  stub_at "$bin/python3" 'exit 0'
  for program in ninja ccache pkg-config; do stub_at "$bin/$program" 'exit 0'; done
  touch "$work/calls"
}
setup() { env -u CXX PATH="$bin" KEVIN_TORCH="${torch-$work/c/torch}" bash "$work/c/tools/setup.sh" "$@" 2>&1; }

make_machine
out=$(setup)
check "a machine that has everything only configures and builds" same "$? $(cut -d' ' -f1-3 "$work/calls" | tr '\n' ' ')" "0 cmake --preset dev cmake --build --preset "
check "the stamp is written" test -e "$work/c/build/dev/kevin-ready"
: >"$work/calls"
setup >/dev/null
check "the second time it only builds" same "$(cut -d' ' -f1-3 "$work/calls")" "cmake --build --preset"

make_machine
stub_at "$bin/dpkg-query" 'case "$*" in *libfmt-dev*) exit 1;; *) echo "ii ";; esac'
stub_at "$bin/id" 'echo 1000'
out=$(setup)
check "without root and sudo: code 3" same $? 3
check "and the exact line to type" contains "$out" "apt-get install --no-install-recommends libfmt-dev"
check "and no stamp" test ! -e "$work/c/build/dev/kevin-ready"
stub_at "$bin/sudo" 'shift; exec "$@"'
out=$(setup)
check "with sudo only the missing package is installed" contains "$? $(cat "$work/calls")" "install --no-install-recommends libfmt-dev"

make_machine
stub_at "$bin/id" 'echo 0'
stub_at "$bin/dpkg-query" 'exit 1'
stub_at "$bin/apt-get" 'echo "no such package"; exit 100'
out=$(setup)
check "a failing apt ends it with code 4" same $? 4
check "and shows what apt said" contains "$out" "no such package"
stub_at "$bin/apt-cache" '[ "$2" != catch2 ]'
out=$(setup)
check "a package that the system does not have ends it with code 3" contains "$? $out" "3 "
check "and is named" contains "$out" "no package catch2"

make_machine
stub_at "$bin/cmake" 'case $1 in --version) echo "cmake version 3.25.1";; --build) echo "x.cc: error"; exit 1;; esac'
out=$(setup)
check "a failing build ends it with code 4" same $? 4
check "and leaves no stamp" test ! -e "$work/c/build/dev/kevin-ready"

make_machine
torch=$work
out=$(setup)
check "a KEVIN_TORCH without torch ends it with code 2" same $? 2
torch=
mkdir -p "$work/c/.torch.new/torch/lib"   # what an interrupted download leaves
stub_at "$bin/python3" 'case "$*" in "-m venv "*) mkdir -p "$3/bin"; cp '"$bin"'/fake-pip "$3/bin/python";; *find_spec*) echo "";; esac'
stub_at "$bin/fake-pip" 'echo "pip $*" >>'"$work"'/calls; while [ "$1" != --target ]; do shift; done; cp -r '"$work"'/c/torch "$2/torch"'
out=$(setup)
check "torch is fetched when there is none" same "$? $(grep -c '^pip.*--no-deps.*torch==2.11' "$work/calls")" "0 1"
check "half a download is replaced" test ! -e "$work/c/.torch.new" -a -e "$work/c/.torch/torch/lib/libtorch_cpu.so"
setup >/dev/null
check "and kept" same "$(grep -c '^pip.*torch==' "$work/calls")" 1
check "a run on a CPU needs no device compiler" same "$(grep -c '^pip.*nvidia-cuda-nvrtc==13' "$work/calls")" 0
setup kevin-gpu-compiler >/dev/null
check "which is fetched when its program is built, once" same "$(grep -c '^pip.*--no-deps.*nvidia-cuda-nvrtc==13' "$work/calls")" 1
rm "$work/c/.torch/device-compiler.txt"   # as an older set-up left it
setup kevin-gpu-compiler >/dev/null
check "a .torch from before gets it too" same "$(grep -c '^pip.*nvidia-cuda-nvrtc==13' "$work/calls")" 2
check "and keeps its torch" same "$(grep -c '^pip.*torch==' "$work/calls")" 1
rm "$work/c/.torch/device-compiler.txt"
cp "$bin/fake-pip" "$work/fake-pip"
stub_at "$work/c/build/setup/venv/bin/python" 'exit 1'
out=$(setup kevin-gpu-compiler)
check "without a network the rest still works" contains "$? $out" "0 "
check "and it is said" contains "$out" "kernels for a GPU cannot be compiled"
cp "$work/fake-pip" "$work/c/build/setup/venv/bin/python"
echo "torch==2.10.0" >"$work/c/.torch/requirements.txt"
setup >/dev/null
check "another list of requirements is fetched anew" same "$(grep -c '^pip.*torch==' "$work/calls")" 2

# --- one program more, the plan, old build folders ---
make_machine
torch=$work/c/torch
out=$(setup)
check "the plan says how long it takes" contains "$out" "this takes about"
mkdir -p "$work/c/build/dev/bin" && touch "$work/c/build/dev/bin/kevin-model"
: >"$work/calls"
out=$(setup kevin-gpu-judge.so)
check "a plug-in is built by its name" contains "$(cat "$work/calls")" "--target kevin-gpu-judge kevin-model"
check "and it is said" contains "$out" "building kevin-gpu-judge, needed here for the first time"
echo "layout 1" >"$work/c/build/dev/kevin-configured"
touch "$work/c/build/dev/old"
setup >/dev/null
check "a build folder of an older layout is made anew" test ! -e "$work/c/build/dev/old" -a -e "$work/c/build/dev/build.ninja"
stub_at "$bin/nproc" 'echo 2'
out=$(setup all)
check "the tests' Python is planned" contains "$out" "a Python with torch for the tests"
check "and can be left out" same "$(setup --without-python all | grep -c 'Python with torch')" 0

[ $failed = 0 ] && rm -rf "$work" && echo "all script tests passed"
exit $failed
