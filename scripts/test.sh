#!/usr/bin/env bash
# Builds and runs the tests: every test binary of the workspace, then the suites in tests/suites. Each runs alone under
# a bound of its own, in private mount and process namespaces, so that a hang costs one failure and not the run.
#
#   scripts/test.sh all              everything
#   scripts/test.sh quick            the workspace's test binaries only
#   scripts/test.sh NAME...          the binaries and suites whose name contains NAME
#
# FOREBAY_TEST_BUILT=yes runs what was built before, as it is. FOREBAY_TEST_SLOWER=N gives each N times as long.
#
# Prints a line per suite and the totals; logs are in target/test. Exit status 0 only if everything passed.
set -u
cd "$(dirname "$0")/.." || exit 1
# shellcheck source=scripts/environment.sh
. scripts/environment.sh

MINUTES_MAX=${FOREBAY_TEST_MINUTES:-60} # the whole run, compiling included
BUILD_SECONDS_MAX=1500  # from a clean clone on two slow cores
BINARY_SECONDS_MAX=$((240 * ${FOREBAY_TEST_SLOWER:-1})) # one test binary
KILL_AFTER_SECONDS=10   # between SIGTERM and SIGKILL

# Suites in the order they run, with the seconds each may take.
SUITES="docs:720 promises:300 experiments:480 programs:420 preload:760 read_ahead:200 pjdfstest:420 fsx:420 aarch64:300 interleavings:600 vm:${FOREBAY_VM_SECONDS:-600} old_kernel:${FOREBAY_OLD_KERNEL_SECONDS:-720}"

out=target/test
export RUST_BACKTRACE=0
selection=${1:-all}
names=("$@")

if [ "$(id -u)" != 0 ]; then
  exec sudo --preserve-env=PATH,HOME,CI --non-interactive "$0" "$@"
fi
if [ -z "${FOREBAY_TEST_NAMESPACE:-}" ]; then
  # Nothing mounted by a test is seen by the machine, and nothing survives the run.
  FOREBAY_TEST_NAMESPACE=1 exec unshare --mount --propagation private "$0" "$@"
fi
mkdir -p "$out"
start=$(date +%s)
passed=0 failed=0
failures=()

note_totals() { echo "$passed $failed" >"$out/totals"; }

seconds_left() { echo $((start + MINUTES_MAX * 60 - $(date +%s))); }

selected() { # NAME
  case $selection in
    all | quick) return 0 ;;
  esac
  local name
  for name in "${names[@]}"; do
    [[ $1 == *"$name"* ]] && return 0
  done
  return 1
}

fuse_connections() { ls /sys/fs/fuse/connections 2>/dev/null; }

# Aborts the FUSE connections that came since the list in $1 and have a request that nobody answers: their server is
# gone or hangs, and whoever waits for it cannot even be killed.
abort_stuck_connections() { # BEFORE
  local connection
  sleep 1
  for connection in $(fuse_connections); do
    grep -qx "$connection" <<<"$1" && continue
    [ "$(cat "/sys/fs/fuse/connections/$connection/waiting" 2>/dev/null || echo 0)" = 0 ] && continue
    echo "      aborting FUSE connection $connection"
    echo 1 >"/sys/fs/fuse/connections/$connection/abort" 2>/dev/null
  done
}

# Adds what a log says to the counts: the lines `test result: ... N passed; M failed`, which cargo's harness and our
# suites both write. A log cut short counts the tests it names.
count() { # LOG STATUS -> sets suite_passed, suite_failed
  read -r suite_passed suite_failed < <(awk '
    /^test result: / { for (i = 1; i <= NF; i++) { if ($i ~ /^passed/) p += $(i-1); if ($i ~ /^failed/) f += $(i-1) } ended = 1 }
    /^test .* ok$/ { named++ }
    END { if (!ended) p = named; print p + 0, f + 0 }' "$1")
  if [ "$2" != 0 ] && [ "$suite_failed" = 0 ]; then
    suite_failed=1
  fi
}

run() { # NAME BOUND COMMAND...
  local name=$1 bound=$2 log left before began took status verdict
  shift 2
  log=$out/${name//\//.}.log
  left=$(seconds_left)
  [ "$left" -lt "$bound" ] && bound=$left
  began=$(date +%s.%N)
  if [ "$bound" -lt 5 ]; then
    echo "no time left" >"$log"
    status=124
  else
    before=$(fuse_connections)
    # Process 1 of the namespace must reap what its descendants leave, hence the shell around the command. Who starts
    # us in the background may have us ignore SIGINT, which programs would inherit.
    # shellcheck disable=SC2016
    timeout --kill-after=$KILL_AFTER_SECONDS "$bound" unshare "${isolation[@]}" env --default-signal \
      bash -c '"$@"; exit $?' init "$@" >"$log" 2>&1 </dev/null
    status=$?
    [ "$status" = 124 ] || [ "$status" = 137 ] && abort_stuck_connections "$before"
  fi
  took=$(awk -v a="$began" -v b="$(date +%s.%N)" 'BEGIN { printf "%.1f", b - a }')
  count "$log" "$status"
  passed=$((passed + suite_passed))
  failed=$((failed + suite_failed))
  note_totals
  verdict=ok
  [ "$suite_failed" = 0 ] || verdict=FAILED
  [ "$status" = 124 ] || [ "$status" = 137 ] && verdict=TIMEOUT
  [ "$verdict" = ok ] && [ "$suite_passed" = 0 ] && grep -q '^not tested' "$log" && verdict=UNTESTED
  printf '%-8s %-44s %4d passed %3d failed %7s s\n' "$verdict" "$name" "$suite_passed" "$suite_failed" "$took"
  [ "$verdict" = UNTESTED ] && grep '^not tested' "$log" && return
  # Of what passed, some part perhaps.
  [ "$verdict" = ok ] && grep '^not tested in' "$log"
  if [ "$verdict" != ok ]; then
    failures+=("$name")
    show_failure "$log"
  fi
}

show_failure() { # LOG
  echo "------ from $1"
  grep -A 4 -e 'panicked at' -e '^test .* FAILED:' "$1" | cut -c 1-240 | head -n 60
  echo "------ its end"
  tail -n 25 "$1" | cut -c 1-240
  echo "------"
}

fetch() {
  local try
  for try in 1 2 3 4; do
    timeout 180 cargo fetch --locked --quiet </dev/null && return 0
    sleep $((try * 3))
  done
  echo "cannot fetch the dependencies; going on with what is there"
}

# Builds everything once, in one profile, and lists the test binaries: NAME DIRECTORY EXECUTABLE.
build() {
  echo "building (log in $out/build.log)"
  if ! timeout --kill-after=$KILL_AFTER_SECONDS $BUILD_SECONDS_MAX \
    cargo build --locked --workspace --all-targets --message-format=json-render-diagnostics \
    >"$out/build.json" 2>"$out/build.log" </dev/null; then
    failed=$((failed + 1))
    note_totals
    echo "FAILED   build"
    show_failure "$out/build.log"
    return 1
  fi
  echo "built in $(($(date +%s) - start)) s"
  grep '"reason":"compiler-artifact"' "$out/build.json" | grep '"profile":{[^}]*"test":true' | grep -v '"executable":null' |
    sed -E 's/.*"manifest_path":"([^"]*)\/Cargo.toml","target":\{"kind":\["([a-z-]*)"\].*"name":"([^"]*)".*"executable":"([^"]*)".*/\1 \2 \3 \4/' |
    while read -r directory kind name executable; do
      echo "$(basename "$directory")/${kind/test/$name} $directory $executable"
    done | sort >"$out/binaries"
}

run_binaries() {
  local name directory executable
  while read -r name directory executable; do
    selected "$name" || continue
    run "$name" $BINARY_SECONDS_MAX env --chdir="$directory" CARGO_MANIFEST_DIR="$directory" "$executable"
  done <"$out/binaries"
}

run_suites() {
  local entry name
  [ "$selection" = quick ] && return
  for entry in $SUITES; do
    name=${entry%:*}
    selected "suite/$name" || continue
    run "suite/$name" "${entry#*:}" "tests/suites/$name.sh"
  done
}

isolation=(--mount --propagation private --pid --fork --kill-child --mount-proc)
# Some containers hide parts of /proc and refuse a second one; what a suite leaves running there is not killed with it.
unshare "${isolation[@]}" true 2>/dev/null || isolation=(--mount --propagation private)

note_totals
mountpoint -q /sys/fs/fuse/connections || mount -t fusectl none /sys/fs/fuse/connections 2>/dev/null
[ "${FOREBAY_TEST_BUILT:-}" = yes ] || fetch
if [ "${FOREBAY_TEST_BUILT:-}" = yes ] || build; then
  run_binaries
  selected doctests && run doctests $BINARY_SECONDS_MAX cargo test --locked --quiet --workspace --doc
  selected tidy && run tidy 60 cargo xtask tidy
  run_suites
fi

echo
echo "$(($(date +%s) - start)) s in all"
[ ${#failures[@]} -gt 0 ] && printf 'failed: %s\n' "${failures[*]}"
echo "$passed passed, $failed failed"
note_totals
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
