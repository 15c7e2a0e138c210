#!/bin/sh
# Starts kevin from an unpacked bundle; finds this machine's torch 2.11 for the programs that need it:
# $KEVIN_TORCH, then .torch beside this file, then the torch of the python3 on the PATH.
# "kevin --exec PROGRAM ARGS" starts another program in the same surroundings.
here=$(dirname -- "$(readlink -f -- "$0")")

good_torch() {
  [ -e "$1/lib/libtorch_cpu.so" ] && grep -qs 'define TORCH_VERSION_MAJOR 2$' "$1/include/torch/headeronly/version.h" &&
    grep -qs 'define TORCH_VERSION_MINOR 11$' "$1/include/torch/headeronly/version.h"
}

find_torch() {
  for torch in "${KEVIN_TORCH-}" "${KEVIN_TORCH-}/torch"; do
    [ -n "${KEVIN_TORCH-}" ] && good_torch "$torch" && return
  done
  if [ -n "${KEVIN_TORCH-}" ]; then
    problem="KEVIN_TORCH=$KEVIN_TORCH is no folder of torch 2.11"
    return 1
  fi
  torch=$here/.torch/torch
  good_torch "$torch" && return
  torch=$(python3 -c "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')" \
    2>/dev/null)
  good_torch "$torch" && return
  problem="no torch 2.11 on this machine${torch:+ ($torch is another version)}"
  return 1
}

# The file name of the machine's own C++ run-time ends in its version, such as 6.0.33.
newest_gcc_libraries() {
  for library in $(/sbin/ldconfig -p 2>/dev/null | sed -n 's/.*libstdc++\.so\.6 .*x86-64.* => //p') \
    /usr/lib/x86_64-linux-gnu/libstdc++.so.6 /usr/lib64/libstdc++.so.6; do
    [ -e "$library" ] || continue
    own=$(readlink -f "$library")
    own=${own##*.so.}
    ours=$(cat "$here/lib/gcc/version")
    [ "$(printf '%s\n' "$own" "$ours" | sort -V | tail -n 1)" = "$own" ] && return
    break
  done
  echo "$here/lib/gcc:"
}

libraries=$(newest_gcc_libraries)
if find_torch; then
  export KEVIN_TORCH="$torch"
  libraries=$libraries$torch/lib:
  for folder in "${torch%/*}"/nvidia/*/lib; do
    [ -d "$folder" ] && libraries=$libraries$folder:
  done
else
  case " $* " in
    *" --help "* | *" -h "*) ;;
    " run "* | " bench "*)
      printf 'kevin: %s\n  %s\n' "$problem" \
        "Install torch 2.11 for python3, or set KEVIN_TORCH to the folder that Python imports it from." >&2
      exit 3
      ;;
  esac
fi
export KEVIN_OUTER_LIBRARY_PATH="${LD_LIBRARY_PATH-}"   # for programs that are not ours: Python
LD_LIBRARY_PATH=$libraries$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
if [ "${1-}" = --exec ]; then
  shift
  exec "$@"
fi
exec "$here/bin/kevin" "$@"
