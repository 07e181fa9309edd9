#!/usr/bin/env bash
# A machine that really crashes, and kernels that clusters run: Debian's kernel 6.1, which knows no FUSE passthrough, in
# emulation. Its power is cut while a workload writes, drains, commits and recovers; each acknowledgement had left the machine
# before, and must hold after the next start. The same programs over the kernel's own NFS.
#
#   tests/suites/vm.sh [FACT...]          FOREBAY_VM_CRASHES=4 FOREBAY_VM_WINDOW_CRASHES=4 FOREBAY_VM_DELEGATED_CRASHES=4
#
# Needs no KVM. What cannot be installed is told, and nothing is tested.
cd "$(dirname "$0")" || exit 1
. ./report.sh
. ./accelerated.sh
here=$top/tests/vm
. "$here/machine.sh"

CRASHES=${FOREBAY_VM_CRASHES:-4}
WINDOW_CRASHES=${FOREBAY_VM_WINDOW_CRASHES:-4}
DELEGATED_CRASHES=${FOREBAY_VM_DELEGATED_CRASHES:-4}
COMMIT_POINTS=(w6.synced w7.verified w7.committed) # of the file cache's fault points
# Of the delegated directories' log and of their way to the store.
DELEGATED_POINTS=(apply.logged apply.created apply.filled apply.renamed apply.synced)
KINDS=(writing draining committing recovering)
RULES=
ACKNOWLEDGED_MIN=40 # before a crash while it writes
UNSYNCED_MIN=20     # writes in windows, for each crash
START_SECONDS_MAX=120
RUN_SECONDS_MAX=150
RANDOM=${FOREBAY_VM_SEED:-20261122}

console() { tr -d '\r' <"$dir/console" | tail -n 40; }
pause() { sleep "$(awk -v ms="$1" 'BEGIN { print ms / 1000 }')"; }

passes() { # SECONDS: the machine says that it passed, and ends
  machine_says "$dir" 'vm: passed\|vm: failed' "$1"
  machine_cut "$dir"
  grep -q 'vm: passed' "$dir/console" && return 0
  console
  return 1
}

programs_agree() { # JOB_LINE...
  machine_disks "$dir" && machine_start "$dir" job=programs "$@"
  passes $RUN_SECONDS_MAX && echo "$(grep -c "^ok" "$dir/console") facts" && return 0
  return 1
}
programs_run_on_a_kernel_without_passthrough() { # S13, S37, S40
  programs_agree windows=yes
}
programs_run_over_nfs() { # S1
  programs_agree nfs_options=soft
}

acknowledged() { wc -l <"$dir/ledger.new"; }

# Starts, is cut at a moment of the given kind, and leaves the ledger with what was acknowledged. Fails if the moment
# does not come, for then nothing was tried; with 2 if it was over.
crash() { # KIND JOB_LINE...
  local kind=$1 tries came=yes enough=$((ACKNOWLEDGED_MIN + RANDOM % 100))
  shift
  case $kind in
    writing | recovering) machine_start "$dir" job=crash "options='$RULES'" "$@" ;;
    remounting) kind=writing && machine_start "$dir" job=crash "options='$RULES'" remounts=yes "$@" ;;
    draining) machine_start "$dir" job=crash "options='$RULES --policy stage_out=manual'" operations=150 "$@" ;;
    # The agent stops dead there, and the machine with it.
    committing) machine_start "$dir" job=crash "options='$RULES --policy stage_out=manual'" operations=150 \
      "fault=${COMMIT_POINTS[RANDOM % ${#COMMIT_POINTS[@]}]}:$((1 + RANDOM % 3))" "$@" ;;
  esac
  machine_says "$dir" "vm: $kind\|vm: failed" $START_SECONDS_MAX || came="no word of $kind"
  if [ "$kind" = writing ]; then
    for tries in $(seq $((START_SECONDS_MAX * 20))); do
      [ "$(acknowledged)" -ge $enough ] && break
      machine_runs || break
      sleep 0.05
    done
  fi
  [ "$kind" = committing ] || pause $((RANDOM % within))
  machine_cut "$dir"
  [ "$kind" = writing ] && [ "$(acknowledged)" -lt "$enough" ] && came="$(acknowledged) of $enough acknowledgements"
  # A drain may pass no such point, or not so often.
  { [ "$came" = yes ] || [ "$kind" = committing ]; } && grep -q 'vm: drained' "$dir/console" && return 2
  [ "$came" = yes ] && ! grep -q 'vm: failed' "$dir/console" && return 0
  [ "$came" = yes ] || echo "while $kind: $came"
  console
  return 1
}

survives_crashes() { # JOB_LINE...
  # A recovery has most to do after a drain that was cut: four crashes are one of each kind.
  local n tries ended kind within=1500 kinds=("${KINDS[@]}")
  machine_disks "$dir" || return
  crash writing first=yes "$@" || return
  for n in $(seq 2 "$CRASHES"); do
    kind=${kinds[(n - 1) % ${#kinds[@]}]}
    within=1500
    for tries in 1 2 3 4 5; do
      crash "$kind" "$@"
      ended=$?
      [ $ended = 2 ] || break
      within=$((within / 3)) # it was over by then
    done
    [ $ended = 0 ] || { echo "after crash $n ($kind): $ended" && return 1; }
  done
  machine_start "$dir" job=crash last=yes "$@"
  passes $RUN_SECONDS_MAX || return
  echo "$(wc -l <"$dir/ledger") lines of the ledger hold after $CRASHES crashes"
}
acknowledgements_survive_crashes_of_the_machine() { # S15
  survives_crashes
}
acknowledgements_survive_crashes_over_nfs() { # S15
  # The kinds of crash are those of the fact above; only the global store is another.
  local CRASHES=2
  survives_crashes nfs_options=soft
}
# After one kind of crash the next start mounts, and looks at the directory through the mount; after others it recovers, and looks at
# the global store.
delegated_directories_survive_crashes() { # S71, S15
  local CRASHES=$DELEGATED_CRASHES RULES="--policy delegate=new" KINDS=(writing remounting committing recovering remounting draining)
  local COMMIT_POINTS=("${DELEGATED_POINTS[@]}")
  survives_crashes delegates=yes || return
  echo "$(grep -c '^r ' "$dir/ledger") delegated directories, $(grep -c '^[pa] ' "$dir/ledger") changes of names without a sync:" \
    "$(wc -l <"$dir/ledger") lines of the ledger hold after $CRASHES crashes"
}
writes_in_persistent_windows_survive_crashes_without_a_sync() { # S50
  local unsynced CRASHES=$WINDOW_CRASHES
  survives_crashes windows=yes || return
  unsynced=$(grep -c 'window$' "$dir/ledger")
  [ "$unsynced" -ge $((CRASHES * UNSYNCED_MIN)) ] || { echo "$unsynced of them were not synced: too few" && return 1; }
  echo "$unsynced of $(wc -l <"$dir/ledger") lines of the ledger were never synced, and hold after $CRASHES crashes"
}

machine_or_finish
facts=(programs_run_on_a_kernel_without_passthrough programs_run_over_nfs acknowledgements_survive_crashes_of_the_machine
  acknowledgements_survive_crashes_over_nfs delegated_directories_survive_crashes writes_in_persistent_windows_survive_crashes_without_a_sync)
[ $# -gt 0 ] && facts=("$@")
for fact in "${facts[@]}"; do
  if "$fact" >"$scratch/fact" 2>&1; then
    pass "$fact"
    tail -n 1 "$scratch/fact"
  else
    fail "$fact" "$(tail -n 1 "$scratch/fact")"
    tail -n 45 "$scratch/fact"
  fi
done
finish
