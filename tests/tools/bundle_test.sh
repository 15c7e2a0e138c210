#!/bin/bash
# Packs this build, unpacks it elsewhere and starts it there: bundle_test.sh SOURCE_TREE BUILD_FOLDER SCRATCH_FOLDER
set -u
source=$1
build=$2
work=$3
failed=0
check() {   # check WHAT CONDITION...
  local what=$1
  shift
  "$@" || { echo "FAILED: $what"; failed=1; }
}

rm -rf "$work"
mkdir -p "$work/a place/empty"
"$source/tools/bundle" --build "$build" -o "$work/b.tar.gz" || exit 1
check "the archive is under 40 MB" test "$(stat -c %s "$work/b.tar.gz")" -lt 40000000
tar -C "$work/a place" -xzf "$work/b.tar.gz" || exit 1
top="$work/a place/kevin"
there() { (cd "$work/a place/empty" && env -i HOME=/ PATH=/usr/bin:/bin "$@"); }

check "it starts from where it was unpacked" there "$top/kevin" --help >"$work/help"
check "and prints its help" grep -q -- --help "$work/help"
check "the problems came along" test -e "$top/share/kevin/problems/level1/019_relu.toml"
check "the script for torch.compile came along" test -x "$top/share/kevin/torch_compile.py"
there KEVIN_TORCH=/nowhere "$top/kevin" run --problem level1/19 2>"$work/errors"
check "without torch, run ends with code 3" test $? = 3
check "and says what is missing" grep -q "KEVIN_TORCH=/nowhere is no folder of torch 2.11" "$work/errors"
check "no glibc, torch or CUDA library is in it" \
  test -z "$(find "$top/lib" -name 'libc.so*' -o -name 'libm.so*' -o -name 'ld-linux*' -o -name 'libtorch*' -o -name 'libcu*' ! -name 'libcurl*')"
mkdir -p "$work/t/lib" "$work/t/include/torch/headeronly"
touch "$work/t/lib/libtorch_cpu.so"
printf '#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 11\n' >"$work/t/include/torch/headeronly/version.h"
check "a torch is put on the library path of the programs" test \
  "$(there KEVIN_TORCH="$work/t" "$top/kevin" --exec /bin/sh -c 'echo "$KEVIN_TORCH $LD_LIBRARY_PATH"' | grep -c "^$work/t .*$work/t/lib:")" = 1
"$source/tools/bundle" --build "$work" -o "$work/c.tar.gz" 2>/dev/null
check "a folder without a build is refused with code 2" test $? = 2

[ $failed = 0 ] && rm -rf "$work" && echo "all bundle tests passed"
exit $failed
