#!/usr/bin/env bash
# POSIX conformance: pjdfstest in an accelerated directory, compared with the same run in the plain directory, on the
# disk's file system and on tmpfs, where all goes through, where the burst buffer has no room, where the kernel passes nothing
# through, in a delegated directory, and through a server that has the names. Failures that stand in pjdfstest.expected, each with its clause of
# docs/semantics.md, are allowed: at most one in a hundred, none in the calls that matter most, and one that passes fails the run.
#
#   tests/suites/pjdfstest.sh [CASE...]        FOREBAY_PLAIN=1 compares the plain directory with itself
#
# Clauses: S1, S48, S71
cd "$(dirname "$0")" || exit 1
. ./report.sh
. ./accelerated.sh

VERSION=0.2.2
EXPECTED_SHARE_MAX=100 # one failure may be listed for so many cases
NEVER_EXPECTED='^(open|rename|link|unlink|truncate|ftruncate)::'
RUN_SECONDS_MAX=150
# Skips itself on FUSE: the C library knows no LINK_MAX there.
SKIPPED='^link::link_count_max$'

cat >"$scratch/pjdfstest.toml" <<'TOML'
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}

[settings]
naptime = 0.02

[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
TOML

# Prints `CASE VERDICT` for each case; what a failing case says goes to the log.
run_cases() { # DIR LOG [CASE...]
  local dir=$1 log=$2
  shift 2
  timeout --kill-after=5 $RUN_SECONDS_MAX "$tools/bin/pjdfstest" --configuration-file "$scratch/pjdfstest.toml" \
    --path "$dir" --secondary-fs "$scratch/other" "$@" >"$log" 2>&1 </dev/null
  sed 's/\x1b\[[0-9;]*m//g' "$log" | awk 'NF == 2 && $2 ~ /^(ok|FAILED|skipped)$/ { print $1, $2 }' | sort
}

# Joins what the plain and the accelerated run said with the list, and judges each case.
judge() { # LABEL PLAIN ACCELERATED LOG
  local label=$1 ok=0 listed=0 name plain accelerated clause
  while read -r name plain accelerated clause; do
    case "$plain/$accelerated/${clause:--}" in
      ok/ok/-) ok=$((ok + 1)) ;;
      ok/ok/*) fail "$label::$name" "listed under $clause, but it passes: take it off the list" ;;
      ok/FAILED/-)
        fail "$label::$name" "passes in the plain directory"
        sed 's/\x1b\[[0-9;]*m//g' "$4" | grep -F -A 3 "$name " | grep -v '^--' | tail -n +2
        ;;
      ok/FAILED/*) listed=$((listed + 1)) && echo "$label::$name fails as listed, $clause" ;;
      ok/skipped/-) [[ $name =~ $SKIPPED ]] || fail "$label::$name" "is skipped, but not in the plain directory" ;;
      ok/*) fail "$label::$name" "was not run to its end ($accelerated)" ;;
    esac
  done < <(join -a 1 -e - -o 0,1.2,2.2 "$2" "$3" | join -a 1 -o 0,1.2,1.3,2.2 - "$scratch/expected")
  passed_count=$((passed_count + ok))
  echo "$label: $ok cases pass, $listed fail as listed"
  if [ $((listed * EXPECTED_SHARE_MAX)) -gt $((ok + listed)) ]; then
    fail "$label::share_of_listed_failures" "$listed of $((ok + listed))"
  fi
  [ "$ok" -gt 0 ] || fail "$label" "no case passed"
}

# Under a policy, against what LIKE said in the plain directory.
compare_policy() { # LABEL LIKE GLOBAL BUFFER POLICY CASE...
  local label=$1 like=$2 global=$3 buffer=$4 policy=$5
  shift 5
  mkdir -p "$global" "$buffer"
  if ! mount_accelerated "$global" "$buffer" --policy "$policy"; then
    fail "$label" "cannot mount"
    return
  fi
  run_cases "$global" "$scratch/$label.log" "$@" >"$scratch/$label.accelerated"
  unmount_accelerated "$global" || fail "$label::unmount" "the mount does not go"
  judge "pjdfstest::$label" "$scratch/$like.plain" "$scratch/$label.accelerated" "$scratch/$label.log"
}

compare() { # LABEL GLOBAL BUFFER CASE...
  local label=$1 global=$2 buffer=$3
  shift 3
  mkdir -p "$global" "$buffer"
  run_cases "$global" "$scratch/$label.plain.log" "$@" >"$scratch/$label.plain"
  if ! mount_accelerated "$global" "$buffer"; then
    fail "$label" "cannot mount"
    return
  fi
  run_cases "$global" "$scratch/$label.log" "$@" >"$scratch/$label.accelerated"
  unmount_accelerated "$global" || fail "$label::unmount" "the mount does not go"
  judge "pjdfstest::$label" "$scratch/$label.plain" "$scratch/$label.accelerated" "$scratch/$label.log"
}

# The same through a server, as a node that does not see GLOBAL; compared with what LIKE said in the plain directory.
compare_names() { # LABEL LIKE GLOBAL BUFFER DIR CASE...
  local label=$1 like=$2 global=$3 buffer=$4 dir=$5
  shift 5
  mkdir -p "$global" "$buffer" "$dir"
  if ! mount_names "$global" "$buffer" "$dir"; then
    fail "$label" "cannot mount"
    return
  fi
  run_cases "$dir" "$scratch/$label.log" "$@" >"$scratch/$label.accelerated"
  unmount_names "$dir" || fail "$label::unmount" "mount or server does not end"
  judge "pjdfstest::$label" "$scratch/$like.plain" "$scratch/$label.accelerated" "$scratch/$label.log"
}

if ! install_tool pjdfstest $VERSION; then
  fail install "pjdfstest $VERSION cannot be installed"
  finish
fi
grep -v -e '^#' -e '^$' pjdfstest.expected 2>/dev/null | awk '{ print $1, $2 }' | sort >"$scratch/expected"
if grep -E "$NEVER_EXPECTED" "$scratch/expected"; then
  fail listed "failures of these calls cannot be listed"
fi
mkdir -p "$scratch/memory" "$scratch/other"
mount -t tmpfs forebay-test "$scratch/memory"
mount -t tmpfs forebay-test "$scratch/other"
chmod 755 "$scratch/memory" "$scratch/other"
compare disk "$scratch/global" "$scratch/buffer" "$@"
compare memory "$scratch/memory/global" "$scratch/memory/buffer" "$@"
compare_policy through memory "$scratch/memory/through" "$scratch/memory/unused" cache=through "$@"
mkdir "$scratch/small"
mount -t tmpfs -o size=1m forebay-test "$scratch/small"
compare_policy small memory "$scratch/memory/small" "$scratch/small/buffer" passthrough_reserve=30% "$@"
if [ -z "${FOREBAY_PLAIN:-}" ]; then
  # The kernel refuses to pass through to a file system that lies on another.
  mkdir -p "$scratch/memory/"{lower,upper,work} "$scratch/stacked"
  mount -t overlay -o "lowerdir=$scratch/memory/lower,upperdir=$scratch/memory/upper,workdir=$scratch/memory/work" \
    forebay-test "$scratch/stacked"
  compare_policy agent memory "$scratch/memory/agent" "$scratch/stacked/buffer" cache=both "$@"
fi
compare_policy delegated memory "$scratch/memory/delegated" "$scratch/memory/delegating" delegate=new "$@"
compare_names names memory "$scratch/memory/served" "$scratch/memory/server" "$scratch/names" "$@"
finish
