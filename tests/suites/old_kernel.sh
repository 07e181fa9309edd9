#!/usr/bin/env bash
# The workspace's own tests on a kernel that clusters run: Debian's 6.1, which knows no FUSE passthrough, in emulation. The machine sees
# all files of this one, and runs the test binaries that were built here.
#
#   tests/suites/old_kernel.sh [NAME...]      those whose name contains NAME; by default what takes some minutes
#
# Needs no KVM. What cannot be installed is told, and nothing is tested.
cd "$(dirname "$0")" || exit 1
. ./report.sh
. ./accelerated.sh
here=$top/tests/vm
. "$here/machine.sh"

SECONDS_MAX=$((${FOREBAY_OLD_KERNEL_SECONDS:-720} - 60)) # of the tests in the machine
SLOWER=8 # than this machine, at most

names=("$@")
[ $# -gt 0 ] || read -ra names <<<"${FOREBAY_OLD_KERNEL_TESTS:-fuse/ fuse-protocol/ cli/run cli/mount file-cache/stage}"

case $top in
  /tmp/* | /run/* | /dev/* | *[\ \']*)
    echo "not tested: the machine has a /tmp and /run of its own, and takes no spaces, and this is $top"
    finish
    ;;
esac
if [ ! -s "$top/target/test/binaries" ]; then
  echo "not tested: no list of what was built; scripts/test.sh makes it"
  finish
fi
machine_or_finish
machine_disks "$dir" 4G || exit
machine_guest "$dir" job=host place="$top" \
  "environment='FOREBAY_TEST_BUILT=yes FOREBAY_TEST_SLOWER=$SLOWER FOREBAY_TEST_MINUTES=$(((SECONDS_MAX - 60) / 60))'" "command='scripts/test.sh ${names[*]}'"
trap '[ -z "$machine" ] || kill -9 "$machine"; clean_up' EXIT
ended=no
machine_says "$dir" 'vm: passed\|vm: failed' "$SECONDS_MAX" && ended=yes
machine_cut "$dir"
machine=
tr -d '\r' <"$dir/console" >"$scratch/console"
while read -r verdict name passed _ failed _ took _; do
  case $verdict in
    ok) pass "$name" && echo "$passed of its tests on $(grep -o 'vm: kernel .*' "$scratch/console" | head -n 1 | cut -d' ' -f3), $took s" ;;
    FAILED | TIMEOUT) fail "$name" "$failed of its tests" ;;
  esac
done < <(grep -E '^(ok|FAILED|TIMEOUT) +[a-z-]+/' "$scratch/console")
[ $((passed_count + failed_count)) -gt 0 ] || fail "${names[*]}" "the machine ran none"
[ $ended = yes ] && { [ "$failed_count" -gt 0 ] || grep -q 'vm: passed' "$scratch/console"; } || fail machine "it came to no end"
[ "$failed_count" = 0 ] || tail -n 60 "$dir/qemu.log" "$scratch/console"
finish
