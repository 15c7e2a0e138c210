#!/bin/bash
# Under ctest no program finds what somebody imported at home: private_home_test.sh PATH-OF-KEVIN
set -u
kevin=$1
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
mkdir -p "$home/.local/share/kevin/problems/mine"
echo 'no problem at all' >"$home/.local/share/kevin/problems/mine/broken.toml"
if (unset XDG_DATA_HOME && HOME=$home "$kevin" problems >/dev/null 2>&1 </dev/null); then
  echo "FAILED: a broken problem at home goes unnoticed, so this test would too"
  exit 1
fi
if ! HOME=$home "$kevin" problems >/dev/null 2>"$home/err.txt" </dev/null; then
  echo "FAILED: what lies at home is read (XDG_DATA_HOME=${XDG_DATA_HOME-}): $(cat "$home/err.txt")"
  exit 1
fi
case ${XDG_CACHE_HOME-} in
  */home/cache) echo "passed" ;;
  *) echo "FAILED: XDG_CACHE_HOME=${XDG_CACHE_HOME-} is nobody's own"; exit 1 ;;
esac
