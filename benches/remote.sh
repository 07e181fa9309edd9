# The first paper's experiments with the burst buffer behind TCP in another network namespace, 2 ms a request: a program that reads and
# writes through the server, and the same one with windows and reading ahead. Sourced by all.sh. The wire is
# checked too: what a small request takes is told beside its delay, and a case whose plain streams take more than half of its bandwidth
# is refused, for a full wire leaves nothing to gain.

DELAY_US=${DELAY_US:-2000} WIRE_MB=${WIRE_MB:-600}

remote_start() { # MB/s of the wire
  local each
  mkdir -p "$scratch/net"
  for each in here there; do
    touch "$scratch/net/$each"
    unshare --net="$scratch/net/$each" sleep 600 &
    remote_holders+=($!)
    until [ "$(readlink "/proc/$!/ns/net")" != "$(readlink /proc/self/ns/net)" ]; do :; done
    eval "remote_$each=$!"
    nsenter --net="$scratch/net/$each" ip link set lo up
  done
  nsenter --net="$scratch/net/here" ip link add fb0 type veth peer name fb1 netns "$remote_there"
  nsenter --net="$scratch/net/here" sh -c 'ip address add 10.77.1.2/24 dev fb0 && ip link set fb0 up'
  nsenter --net="$scratch/net/there" sh -c 'ip address add 10.77.1.1/24 dev fb1 && ip link set fb1 up'
  nsenter --net="$scratch/net/there" "$forebay" serve "$dir" --burst-buffer "$buffer" --listen tcp:127.0.0.1:4711 --anonymous \
    --policy stage_out=manual >"$out/serve.log" 2>&1 </dev/null &
  remote_server=$!
  until grep -q serving "$out/serve.log"; do kill -0 $remote_server || { cat "$out/serve.log"; exit 1; }; done
  nsenter --net="$scratch/net/there" "$scratch/delay" 10.77.1.1 4712 4711 "$DELAY_US" "$1" &
  remote_wire=$!
}
remote_end() {
  kill -KILL $remote_server $remote_wire "${remote_holders[@]}" 2>/dev/null
  wait 2>/dev/null
  umount "$scratch/net/here" "$scratch/net/there"
}

remote_run() { # SIDE OPTIONS... -- remote's words
  local side=$1 options=() report=$out/remote.report
  shift
  while [ "$1" != -- ]; do options+=("$1") && shift; done
  shift
  if [ "$side" = bare ]; then options=(--policy read_ahead=off); else options+=(--window="$scratch/rings"); fi
  nsenter --net="$scratch/net/here" "$forebay" run --server tcp:10.77.1.1:4712 --dir "$dir" --quiet --report "$report" "${options[@]}" -- \
    "$scratch/remote" "$1" "$dir" "${@:2}"
}
remote_case() { # SIDE LABEL remote's words
  local rate
  rate=$(remote_run "$1" -- "${@:3}") || exit 1
  if [ "$1" = bare ] && awk -v rate="$rate" -v wire="$WIRE_MB" 'BEGIN { exit !(rate > wire / 2) }'; then
    echo "$2: $rate MB/s fill a wire of $WIRE_MB MB/s: give it more" >&2
    exit 1
  fi
  value "$2" MB/s more "$1" "$rate"
  [ "$1" = bare ] || case $3 in
    *read) value "$2: hits" % more forebay "$(python3 -c 'import json, sys
counters = json.load(open(sys.argv[1]))["directories"][0]["counters"]
reads = [counters["read_" + how] for how in ("hits", "late", "misses")]
print(round(100 * reads[0] / max(sum(reads), 1), 1))' "$out/remote.report")" ;;
  esac
}

bench_remote() {
  local processes
  gcc -O2 -pthread -o "$scratch/delay" benches/delay.c && gcc -O2 -o "$scratch/remote" benches/remote.c || exit 1
  remote_holders=()
  remote_start "$WIRE_MB"
  value "a plain write of 8 KiB: delay, and all of it" us less bare "$DELAY_US"
  value "a plain write of 8 KiB: delay, and all of it" us less forebay \
    "$(remote_run bare -- random-write 1 8192 500 83886080 lazy | awk '{ print 8192 / $1 }')"
  for processes in ${PROCESSES:-1 4}; do
    both remote_case "E0-1 write 128 KiB, $processes processes" write "$processes" 131072 $((1024 / processes)) 134217728 sync
    both remote_case "E0-1 read 128 KiB, $processes processes" read "$processes" 131072 $((1024 / processes)) 134217728 lazy
  done
  both remote_case "E0-2 random write 8 KiB in 80 MiB" random-write 1 8192 2000 83886080 sync
  remote_run forebay -- write 1 8192 10240 83886080 sync >/dev/null
  both remote_case "E0-2 random read 8 KiB in 80 MiB" random-read 1 8192 2000 83886080 lazy
  both remote_case "E0-6 frames of 70 x 18 KiB" frames 1 18432 700 134217728 sync
  remote_end
}
