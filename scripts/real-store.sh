#!/usr/bin/env bash
# Starts a real parallel file system on loopback, in mount, process and network namespaces of its own, runs a command with
# STORE set to its mount point, and leaves nothing behind. Needs root; installs the packages from Debian.
#
#   scripts/real-store.sh glusterfs|moosefs COMMAND...
#   scripts/real-store.sh glusterfs sh -c 'target/debug/forebay limits sweep --target $STORE -M 1 -N 1,2,4'
set -eu
cd "$(dirname "$0")/.."
SERVERS=2
# GlusterFS refuses 127.0.0.1. An address for documentation (RFC 5737), on this namespace's own loopback.
ADDRESS=192.0.2.1
kind=${1:?glusterfs or moosefs}
shift

if [ -z "${FOREBAY_REAL_STORE:-}" ]; then
  case $kind in
    glusterfs) scripts/bootstrap.sh glusterfs-server glusterfs-client ;;
    moosefs) scripts/bootstrap.sh moosefs-master moosefs-chunkserver moosefs-client ;;
    *) echo "glusterfs or moosefs, not $kind" >&2 && exit 64 ;;
  esac
  FOREBAY_REAL_STORE=1 exec unshare --mount --propagation private --net --pid --fork --kill-child --mount-proc "$0" "$kind" "$@"
fi

scratch=$(mktemp -d /tmp/forebay-store-XXXXXX) || exit 1
trap 'umount --lazy "$scratch/store" "$scratch/data" 2>/dev/null; rm -rf --one-file-system "$scratch"' EXIT
mkdir "$scratch/data" "$scratch/store"
chmod 755 "$scratch"
ip link set lo up
ip address add $ADDRESS/32 dev lo
mount -t tmpfs -o size=4G x "$scratch/data"

wait_for() { # WHAT COMMAND...
  local tries what=$1
  shift
  for tries in $(seq 300); do
    "$@" >/dev/null 2>&1 && return 0
    sleep 0.1
  done
  echo "$what does not come" >&2
  exit 1
}

# A directory of the machine's, replaced for this namespace by an empty one.
empty() { for dir in "$@"; do mkdir -p "$dir" && mount -t tmpfs x "$dir"; done; }

start_glusterfs() {
  local number bricks=()
  empty /var/lib/glusterd /var/log/glusterfs /run # its socket lies in /run itself
  mkdir /run/gluster
  glusterd --log-level WARNING
  wait_for glusterd gluster volume list
  for number in $(seq $SERVERS); do
    mkdir "$scratch/data/brick$number"
    bricks+=("$ADDRESS:$scratch/data/brick$number")
  done
  gluster --mode=script volume create store "${bricks[@]}" force >/dev/null
  gluster --mode=script volume start store >/dev/null
  mount -t glusterfs $ADDRESS:/store "$scratch/store"
}

start_moosefs() {
  local number
  empty /etc/mfs /var/lib/mfs
  chown mfs:mfs /var/lib/mfs
  echo "$ADDRESS/32 / rw,alldirs,maproot=0" >/etc/mfs/mfsexports.cfg
  echo 'DATA_PATH = /var/lib/mfs' >/etc/mfs/mfsmaster.cfg
  printf 'MFSM NEW' >/var/lib/mfs/metadata.mfs
  chown mfs:mfs /var/lib/mfs/metadata.mfs
  mfsmaster -c /etc/mfs/mfsmaster.cfg start >"$scratch/log" 2>&1 || { cat "$scratch/log" && exit 1; }
  for number in $(seq $SERVERS); do
    mkdir -p "$scratch/data/chunks$number" "$scratch/data/state$number"
    chown mfs:mfs "$scratch/data/chunks$number" "$scratch/data/state$number"
    echo "$scratch/data/chunks$number" >"/etc/mfs/hdd$number.cfg"
    printf 'DATA_PATH = %s\nHDD_CONF_FILENAME = %s\nMASTER_HOST = %s\nCSSERV_LISTEN_PORT = %s\nHDD_LEAVE_SPACE_DEFAULT = 64MiB\n' \
      "$scratch/data/state$number" "/etc/mfs/hdd$number.cfg" $ADDRESS "$((9500 + number))" >"/etc/mfs/chunkserver$number.cfg"
    mfschunkserver -c "/etc/mfs/chunkserver$number.cfg" start >>"$scratch/log" 2>&1 || { cat "$scratch/log" && exit 1; }
  done
  mfsmount "$scratch/store" -H $ADDRESS >>"$scratch/log" 2>&1 || { cat "$scratch/log" && exit 1; }
  mfssetgoal -r 1 "$scratch/store" >/dev/null
}

"start_$kind"
wait_for "the first file on $kind" sh -c "echo x >'$scratch/store/first' && sync '$scratch/store/first' && rm '$scratch/store/first'"
STORE=$scratch/store "$@"
