#!/usr/bin/env bash
# Promises of docs/semantics.md that need the whole system: the real command, a store below that is seen beside the mount,
# an agent that dies, a store that is full. Runs in private mount and process namespaces (scripts/test.sh promises).
#
#   tests/suites/promises.sh [PROMISE...]
cd "$(dirname "$0")" || exit 1
. ./report.sh
. ./accelerated.sh

global=$scratch/global buffer=$scratch/buffer below=$scratch/below

accelerate() { # [OPTION...]
  timeout --kill-after=5 60 "$forebay" mount "$global" --burst-buffer "$buffer" "$@" >>"$scratch/log" 2>&1 </dev/null
}
forebay() { timeout --kill-after=5 60 "$forebay" "$@" >"$scratch/out" 2>&1 </dev/null; }
mounted() { mountpoint -q "$global"; }
accelerated() { [[ $(stat -f -c %T "$1") = fuse* ]]; } # DIR
agent() { pgrep -x forebay; }

# The condition holds within ten seconds.
soon() { # COMMAND...
  local tries
  for tries in $(seq 200); do
    "$@" && return 0
    sleep 0.05
  done
  echo "in vain ($tries times): $*"
  return 1
}

same() { # FILE CONTENT
  [ "$(cat "$1" 2>&1)" = "$2" ] && return 0
  echo "$1 holds: $(head -c 200 "$1" 2>&1), not: $2"
  return 1
}

## The promises. Each starts with an empty directory, not accelerated, and ends with the first command that fails.

a_dirty_file_has_the_size_and_time_of_its_data() { # S3
  accelerate --policy stage_out=manual || return
  echo content >"$global/a" && touch -d 2001-02-03T04:05:06.000000789 "$global/a" || return
  [ "$(stat -c '%s %.9Y' "$global/a")" = "8 981173106.000000789" ] || return
  [ "$(stat -c %s "$below/a")" = 0 ] || return
  forebay drain --wait "$global" || return
  [ "$(stat -c '%s %.9Y' "$below/a")" = "8 981173106.000000789" ]
}

a_removed_file_is_usable_and_never_staged_out() { # S4
  accelerate --policy stage_out=manual || return
  exec 5<>"$global/a" && echo one >&5 && rm "$global/a" && echo two >&5 || return
  [ "$(cat /proc/self/fd/5)" = $'one\ntwo' ] || return
  exec 5>&-
  forebay drain --wait "$global" && [ -z "$(ls -A "$below")" ]
}

acknowledged_writes_survive_the_agent() { # S14
  accelerate --policy stage_out=manual || return
  echo closed >"$global/closed" && exec 5>"$global/open" && echo open >&5 || return
  kill -9 $(agent) && soon dead || return
  exec 5>&-
  [ "$(stat "$global/closed" 2>&1 | grep -c 'not connected')" = 1 ] || return
  umount --lazy "$global" && accelerate && same "$global/closed" closed && same "$global/open" open || return
  forebay umount "$global" && same "$global/closed" closed && same "$global/open" open
}
dead() { ! agent >/dev/null; }

what_an_agent_left_is_recovered_without_a_mount() { # S32
  accelerate --policy stage_out=manual || return
  echo left >"$global/a" && kill -9 $(agent) && soon dead && umount --lazy "$global" || return
  forebay recover "$buffer" --dir "$global" && same "$global/a" left
}

a_closed_file_is_staged_out_by_itself() { # S19
  accelerate && echo content >"$global/a" && soon same "$below/a" content >/dev/null
}

a_dirty_file_is_below_before_it_replaces_a_name() { # S23
  accelerate --policy stage_out=manual || return
  echo old >"$below/name" && echo new >"$global/temporary" && mv "$global/temporary" "$global/name" || return
  same "$below/name" new
}

a_change_below_is_seen_by_new_opens_and_not_by_old_ones() { # S24
  echo first >"$below/a"
  accelerate && same "$global/a" first && exec 5<"$global/a" && echo "second version" >"$below/a" || return
  soon same "$global/a" "second version" >/dev/null || return
  # The old descriptor keeps the old bytes, or fails; it never mixes both.
  local seen
  seen=$(cat <&5 2>&1)
  exec 5<&-
  [[ $seen == first || $seen == *"Stale file handle"* ]] || { echo "the old descriptor read: $seen" && return 1; }
}

a_change_below_a_dirty_file_is_a_conflict_and_costs_neither() { # S25
  accelerate --policy stage_out=manual || return
  echo start >"$global/a" && forebay drain --wait "$global" || return
  echo ours >>"$global/a" && echo "theirs, which is longer" >"$below/a" || return
  forebay drain --wait "$global" && echo "the drain succeeded" && return 1
  grep -qi conflict "$scratch/out" || { cat "$scratch/out" && return 1; }
  same "$below/a" "theirs, which is longer" && same "$global/a" $'start\nours' || return
  forebay resolve "$global/a" --keep burst-buffer && forebay drain --wait "$global" && same "$below/a" $'start\nours'
}

our_own_changes_are_no_conflict() { # S26
  accelerate --policy stage_out=manual || return
  mkdir "$global/d" && echo content >"$global/a" || return
  chmod 640 "$global/a" && chown 1:1 "$global/a" && ln "$global/a" "$global/second" && mv "$global/a" "$global/d/b" || return
  setfattr -n user.x -v y "$global/d/b" && touch -d 2002-02-02 "$global/d/b" && truncate -s 4 "$global/second" || return
  forebay drain --wait "$global" || { cat "$scratch/out" && return 1; }
  same "$below/d/b" cont && [ "$(stat -c '%a %u %h' "$below/second")" = "640 1 2" ]
}

a_full_store_below_is_told_and_costs_nothing() { # S21
  mount -t tmpfs -o size=1m forebay-test "$below" && mount --bind "$below" "$global" || return
  accelerate || return
  head -c 3000000 "$scratch/random" >"$global/a"
  forebay drain --wait "$global" && echo "the drain succeeded" && return 1
  cmp <(head -c 3000000 "$scratch/random") "$global/a" || return
  forebay status "$global" && grep -q -i -E 'fail|no space' "$scratch/out" || { cat "$scratch/out" && return 1; }
  mount -o remount,size=10m "$below" && soon forebay drain --wait "$global" || { cat "$scratch/out" && return 1; }
  cmp <(head -c 3000000 "$scratch/random") "$below/a"
}

a_full_burst_buffer_stops_no_program() { # S30
  mount -t tmpfs -o size=32m forebay-test "$buffer" && accelerate --policy passthrough_reserve=40% || return
  local n
  for n in $(seq 12); do
    head -c 8000000 "$scratch/random" >"$global/$n" || return
  done
  forebay umount "$global" || { cat "$scratch/out" && return 1; }
  for n in $(seq 12); do
    cmp "$global/$n" <(head -c 8000000 "$scratch/random") || return
  done
}

a_mount_below_stays_reachable() { # S33
  mkdir "$global/inner" && mount -t tmpfs forebay-test "$global/inner" && echo inside >"$global/inner/a" || return
  accelerate && same "$global/inner/a" inside && echo more >"$global/inner/b" || return
  [ "$(stat -f -c %T "$global/inner")" = tmpfs ] && forebay umount "$global" && same "$global/inner/b" more
}

a_burst_buffer_serves_one_agent() { # S18
  accelerate && mkdir -p "$scratch/again" "$scratch/other" && mount --bind "$below" "$scratch/again" || return
  forebay mount "$scratch/again" --burst-buffer "$buffer" && return 1 # the same directory by another path
  grep -q 'in use\|serves' "$scratch/out" && ! accelerated "$scratch/again" || return
  forebay mount "$scratch/other" --burst-buffer "$buffer" || return # another directory has an agent and a place of its own
  echo still >"$global/a" && echo beside >"$scratch/other/a" && same "$global/a" still && same "$scratch/other/a" beside || return
  forebay umount "$scratch/other" && same "$scratch/other/a" beside && same "$global/a" still && accelerated "$global"
}

## Running them.

start_over() {
  local mounted
  kill -9 $(agent) 2>/dev/null
  while mounted=$(awk -v below="$scratch/" 'index($5, below) == 1 { print $5 }' /proc/self/mountinfo | tail -n 1) && [ -n "$mounted" ]; do
    umount --lazy "$mounted" || break
  done
  rm -rf --one-file-system "$global" "$buffer" "$below"
  mkdir -p "$global" "$buffer" "$below"
  mount --bind "$global" "$below" # what is below, seen beside the mount
}

openssl enc -aes-128-ctr -nosalt -pass pass:forebay -in /dev/zero 2>/dev/null | head -c 8388608 >"$scratch/random"
if [ $# = 0 ]; then
  # shellcheck disable=SC2046
  set -- $(sed -n 's/^\([a-z_]*\)() { # S[0-9].*/\1/p' promises.sh)
fi
for promise in "$@"; do
  start_over
  : >"$scratch/log"
  if said=$(set +u; "$promise" 2>&1); then
    pass "promises::$promise"
  else
    fail "promises::$promise" "$said"
    tail -n 5 "$scratch/log"
  fi
done
start_over
finish
