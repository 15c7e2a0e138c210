#!/bin/bash
# Makes this checkout ready: tools/setup.sh [TARGET]   (default: kevin_programs; "all" also builds the tests)
# System packages (apt, only the missing ones), libtorch (private, in .torch), configure, build. Every step is
# skipped when already done and can be interrupted and repeated. Progress goes to stdout, logs to build/setup.
# Exits 3 when this machine lacks something that only the person can add, 4 when a step broke, 130 on Ctrl-C.
set -u
root=$(dirname -- "$(dirname -- "$(readlink -f -- "$0")")")
target=${1:-kevin_programs}
logs=$root/build/setup
venv=$logs/venv
stamp=$root/build/dev/kevin-ready
torch_version=2.11.0

say() { printf 'kevin set-up: %s\n' "$*"; }
fail() {   # fail CODE MESSAGE [NEXT STEP]
  printf 'kevin set-up: %s\n' "$2" >&2
  [ -z "${3-}" ] || printf '  %s\n' "$3" >&2
  exit "$1"
}

ticker=
stop_ticker() {
  [ -z "$ticker" ] || { kill "$ticker"; wait "$ticker"; } 2>/dev/null
  ticker=
}
trap 'stop_ticker; say "interrupted; the next start goes on from here" >&2; exit 130' INT TERM
trap stop_ticker EXIT

# Says what is going on with the last line of the log: every second on a terminal, else every 20 s.
tick() {   # tick TITLE LOG
  local every=20 line sleeper
  [ -t 1 ] && every=1
  trap - EXIT INT
  trap 'kill "$sleeper"; exit' TERM
  while true; do
    sleep "$every" >/dev/null 2>&1 &
    sleeper=$!
    wait
    line=$(tail -c 400 "$2" 2>/dev/null | tr '\r' '\n' | grep -v '^ *$' | tail -n 1)
    if [ "$every" = 1 ]; then
      printf '\r\033[K%.*s' "$(($(tput cols 2>/dev/null || echo 80) - 1))" "kevin set-up: $1 ($SECONDS s) $line"
    else
      printf 'kevin set-up:   %s s: %.120s\n' "$SECONDS" "$line"
    fi
  done
}

# Runs one step with its output in a log; on failure shows the end of the log and exits.
step() {   # step NAME TITLE CODE NEXT-STEP COMMAND...
  local log=$logs/$1.log title=$2 code=$3 next=$4 status
  shift 4
  say "$title ..."
  SECONDS=0
  : >"$log"
  tick "$title" "$log" 9>&- &
  ticker=$!
  "$@" >>"$log" 2>&1 </dev/null
  status=$?
  stop_ticker
  [ -t 1 ] && printf '\r\033[K'
  if [ $status -ne 0 ]; then
    tail -n 40 "$log" >&2
    fail "$code" "$title: failed after $SECONDS s (all of its output: $log)" "$next"
  fi
  say "$title: done, $SECONDS s"
}

version_at_least() { [ "$(printf '%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }   # version_at_least HAVE NEED
cmake_good_enough() {
  command -v cmake >/dev/null && version_at_least "$(cmake --version | sed -n '1s/[^0-9]*\([0-9.]*\).*/\1/p')" 3.25
}
compiler_good_enough() { [ "$("$1" -dumpversion 2>/dev/null | cut -d. -f1)" -ge 12 ] 2>/dev/null; }
usable_python() {   # prints a Python that can make a virtual environment and for which torch has a wheel
  local python
  for python in python3 /usr/bin/python3; do
    if "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
      echo "$python"
      return 0
    fi
  done
  return 1
}
installed() { dpkg-query -W -f='${db:Status-Abbrev}' "$1" 2>/dev/null | grep -q '^ii'; }

missing_packages() {
  local package missing=()
  if ! compiler_good_enough g++ && ! compiler_good_enough g++-12; then
    # "g++" is version 12 or newer on Debian 12 and Ubuntu 24.04, but not on Ubuntu 22.04.
    if command -v g++ >/dev/null || [ "$(. /etc/os-release && echo "$ID$VERSION_ID")" = ubuntu22.04 ]; then
      missing+=(g++-12)
    else
      missing+=(g++)
    fi
  fi
  command -v cmake >/dev/null || missing+=(cmake)
  command -v ninja >/dev/null || missing+=(ninja-build)
  command -v ccache >/dev/null || missing+=(ccache)
  command -v pkg-config >/dev/null || missing+=(pkg-config)
  # Any of its three development packages will do; they replace each other.
  installed libcurl4-gnutls-dev || installed libcurl4-nss-dev || installed libcurl4-openssl-dev ||
    missing+=(libcurl4-openssl-dev)
  usable_python >/dev/null || missing+=(python3 python3-venv)
  for package in libfmt-dev nlohmann-json3-dev libcli11-dev libsqlite3-dev libseccomp-dev libtomlplusplus-dev \
    libmd-dev zlib1g-dev catch2 ca-certificates libpqxx-dev libpcre2-dev libutf8proc-dev libcpp-httplib-dev libgloo-dev; do
    installed "$package" || missing+=("$package")
  done
  # A server for the tests of databases on one.
  if [ "$target" = all ] && ! ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; then missing+=(postgresql); fi
  echo "${missing[*]}"
}

install_packages() {
  local packages package as_root=() line lock_wait=-oDPkg::Lock::Timeout=300
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    say "no apt on this system; going on with what is installed"
    return
  fi
  packages=$(missing_packages)
  [ -n "$packages" ] || return
  line="apt-get update && apt-get install --no-install-recommends $packages"
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail 3 "missing system packages: $packages" "As root: $line"
    as_root=(sudo -n)
    if ! sudo -n true 2>/dev/null; then
      [ -t 2 ] && [ -r /dev/tty ] && say "sudo is needed once, to install: $packages" && sudo -v ||
        fail 3 "missing system packages, and sudo is not allowed here: $packages" "As root: $line"
    fi
  fi
  as_root+=(env DEBIAN_FRONTEND=noninteractive)
  if [ -n "$(dpkg --audit)" ]; then
    step dpkg "finishing an interrupted package installation" 4 "Look at: dpkg --audit" \
      "${as_root[@]}" dpkg --configure -a
  fi
  # A package source that cannot be reached matters only if a package then cannot be installed.
  step apt-update "list of system packages" 4 "" \
    bash -c '"$@" || echo "going on with the old list"' -- "${as_root[@]}" apt-get -q "$lock_wait" update
  for package in $packages; do
    apt-cache show "$package" >/dev/null 2>&1 ||
      fail 3 "this system has no package $package; Debian 12, Ubuntu 24.04 and newer do" "Look at: $logs/apt-update.log"
  done
  # shellcheck disable=SC2086
  step apt-install "system packages: $packages" 4 "Is the network up? Then start again, or as root: $line" \
    "${as_root[@]}" apt-get -q -y "$lock_wait" install --no-install-recommends $packages
}

make_venv() {
  [ "$(cat "$venv/ready" 2>/dev/null)" = "$root" ] && return
  rm -rf "$venv"
  local python
  python=$(usable_python) || fail 3 "no Python 3.10 or newer with venv and ensurepip" "Install python3 and python3-venv."
  step venv "private Python environment" 4 "Start again." "$python" -m venv "$venv"
  echo "$root" >"$venv/ready"
}

newer_cmake() {
  cmake_good_enough && return
  make_venv
  if [ ! -x "$venv/bin/cmake" ]; then
    step cmake "CMake 3.25 or newer (this system's is older)" 4 "Is the network up? Then start again." \
      "$venv/bin/python" -m pip install 'cmake>=3.25,<4'
  fi
  PATH=$venv/bin:$PATH
}

has_gpu() { [ -e /dev/nvidia0 ] || nvidia-smi -L >/dev/null 2>&1; }
# A torch package folder that C++ can use: right version, and on a GPU machine not a CPU-only build.
good_torch() {
  local header=$1/include/torch/headeronly/version.h
  [ -e "$1/lib/libtorch_cpu.so" ] && [ -e "$header" ] || return 1
  grep -q 'define TORCH_VERSION_MAJOR 2$' "$header" && grep -q 'define TORCH_VERSION_MINOR 11$' "$header" || return 1
  [ "$gpu" = no ] || [ -e "$1/lib/libtorch_cuda.so" ]
}
python_torch() {
  python3 -c "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')" \
    2>/dev/null
}
torch_requirements() {
  echo "torch==$torch_version"
  # What libtorch_cpu.so itself links; the other 2.7 GB are of use only with a GPU.
  [ "$gpu" = yes ] || printf '%s\n' nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85
}

# What compiles CUDA candidates, on machines without a GPU too; with one, torch brings NVRTC and nvJitLink along.
compiler_requirements() {
  printf '%s\n' nvidia-cuda-crt==13.0.88 nvidia-cuda-cccl==13.0.85
  [ "$gpu" = yes ] || printf '%s\n' nvidia-cuda-nvrtc==13.0.88 nvidia-nvjitlink==13.0.88
}

fetch_torch() {
  local new=$root/.torch.new only=() need_mb=4000 free_mb
  [ "$gpu" = yes ] && need_mb=12000 || only=(--no-deps)
  free_mb=$(df -Pm "$root" | awk 'NR == 2 {print $4}')
  [ "$free_mb" -ge $need_mb ] ||
    fail 3 "$root has $free_mb MB free; libtorch needs $need_mb MB while it is unpacked" "Make room, or set KEVIN_TORCH."
  make_venv
  rm -rf "$new"
  mkdir -p "$new/tmp"
  # shellcheck disable=SC2046
  TMPDIR=$new/tmp step torch "libtorch $torch_version ($([ "$gpu" = yes ] && echo "with the CUDA libraries, 5 GB" || echo "CPU part, 1.3 GB"))" \
    4 "Is the network up? Then start again; or set KEVIN_TORCH to the folder of a torch $torch_version." \
    "$venv/bin/python" -m pip install "${only[@]}" --only-binary=:all: --target "$new" $(torch_requirements)
  good_torch "$new/torch" || fail 4 "pip left no usable torch in $new" "See $logs/torch.log."
  rm -rf "$new/tmp"
  torch_requirements >"$new/requirements.txt"
  rm -rf "$root/.torch"
  mv "$new" "$root/.torch"
}

find_torch() {   # sets $torch
  if [ -n "${KEVIN_TORCH-}" ]; then
    torch=$KEVIN_TORCH
    [ -e "$torch/lib/libtorch_cpu.so" ] || torch=$KEVIN_TORCH/torch
    gpu=no good_torch "$torch" || fail 2 "KEVIN_TORCH=$KEVIN_TORCH is no folder of torch ${torch_version%.*}" \
      "Give the folder that Python imports torch from, or unset KEVIN_TORCH."
    return
  fi
  torch=$root/.torch/torch
  if good_torch "$torch" && [ "$(cat "$root/.torch/requirements.txt" 2>/dev/null)" = "$(torch_requirements)" ]; then
    return
  fi
  torch=$(python_torch)
  if [ -n "$torch" ] && good_torch "$torch"; then
    say "using the torch of $(command -v python3): $torch"
    rm -rf "$root/.torch"
    return
  fi
  fetch_torch
  torch=$root/.torch/torch
}

# Into our own .torch, also one that was made before; a torch of one's own is left alone. Kernels for the CPU need
# none of it.
fetch_device_compiler() {
  local new=$root/.torch.new list=$root/.torch/device-compiler.txt
  [ "$torch" = "$root/.torch/torch" ] || return 0
  [ "$(cat "$list" 2>/dev/null)" != "$(compiler_requirements)" ] || return 0
  make_venv
  rm -rf "$new"
  mkdir -p "$new/packages" "$new/tmp"
  say "CUDA's device compiler and headers (250 MB) ..."
  # shellcheck disable=SC2046
  if TMPDIR=$new/tmp "$venv/bin/python" -m pip install --no-deps --only-binary=:all: --target "$new/packages" \
    $(compiler_requirements) >"$logs/device-compiler.log" 2>&1 </dev/null && cp -r "$new/packages/." "$root/.torch/"; then
    compiler_requirements >"$list"
  else
    say "CUDA's device compiler could not be fetched (see $logs/device-compiler.log); kernels for a GPU cannot be compiled" >&2
  fi
  rm -rf "$new"
}

# The format test wants exactly this version; without it that test is skipped.
fetch_formatter() {
  [ "$target" = all ] && [ ! -x "$venv/bin/clang-format" ] || return 0
  [[ $(clang-format --version 2>/dev/null) != *"version 14."* ]] || return 0
  make_venv
  "$venv/bin/python" -m pip install clang-format==14.0.6 >"$logs/clang-format.log" 2>&1 </dev/null ||
    say "clang-format 14 could not be fetched; the format test will be skipped"
}

jobs() {   # a file with torch in it takes up to 2 GB to compile
  local cores memory
  cores=$(nproc)
  memory=$(awk '/MemAvailable/ {print int($2 / 2e6)}' /proc/meminfo)
  [ "$memory" -ge 1 ] || memory=1
  echo $((cores < memory ? cores : memory))
}

build() {
  local started=$logs/started
  cd "$root" || exit 4
  touch "$started"
  printf '%s\n' "$torch" "$root KEVIN_TORCH=${KEVIN_TORCH-}" "$gpu" >"$logs/inputs"
  if [ -e build/dev/CMakeCache.txt ] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" build/dev/CMakeCache.txt; then
    rm -rf build/dev   # the checkout was moved or copied
  fi
  if [ ! -e build/dev/build.ninja ] || ! cmp -s "$logs/inputs" build/dev/kevin-configured; then
    compiler_good_enough "${CXX:-g++}" || { compiler_good_enough g++-12 && export CC=gcc-12 CXX=g++-12; }
    step configure "configure" 3 "See README.md for the list of packages." \
      cmake --preset dev
    cp "$logs/inputs" build/dev/kevin-configured
  fi
  local targets=(--target "$target")
  [ "$target" = all ] && targets=()   # the preset's own list
  step build "build" 4 "If the sources are unchanged: rm -rf build, then start again." \
    cmake --build --preset dev -j "$(jobs)" "${targets[@]}"
  # Dated before the build began, so that an edit made meanwhile counts as newer.
  cp "$logs/inputs" "$logs/ready"
  touch -r "$started" "$logs/ready"
  mv "$logs/ready" "$stamp"
}

mkdir -p "$logs" 2>/dev/null && [ -w "$logs" ] ||
  fail 3 "cannot write to $root/build" "Use a checkout of your own, or run as the user who owns this one."
exec 9>"$logs/lock"
if ! flock -n 9; then
  say "another set-up of this checkout is running; waiting for it"
  flock 9
fi
gpu=no
has_gpu && gpu=yes
install_packages
newer_cmake
find_torch
fetch_device_compiler
fetch_formatter
build
