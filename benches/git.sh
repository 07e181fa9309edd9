#!/usr/bin/env bash
# Git's own tests in a delegated directory, beside the same in a plain one: every script must end alike. Takes some minutes, and
# a network the first time, so it is not among the suites.
#
#   benches/git.sh [SCRIPT...]       FOREBAY=target/release/forebay; scripts of git's directory `t`, without `.sh`
set -u
cd "$(dirname "$0")/.." || exit 1
. benches/sources.sh
[ "$(id -u)" = 0 ] || exec sudo --preserve-env=PATH,FOREBAY "$0" "$@"
if [ -z "${FOREBAY_BENCH_NAMESPACE:-}" ]; then
  FOREBAY_BENCH_NAMESPACE=1 exec unshare --mount --propagation private --pid --fork --kill-child --mount-proc "$0" "$@"
fi
[ $# -gt 0 ] || set -- t0001-init t1300-config t1400-update-ref t1450-fsck t2400-worktree-add t3200-branch t3404-rebase-interactive \
  t3903-stash t4201-shortlog t5300-pack-object t5304-prune t5310-pack-bitmaps t5510-fetch t5601-clone t6120-describe \
  t6300-for-each-ref t7004-tag t7201-co t7300-clean t7501-commit-basic-functionality t7508-status t7700-repack
forebay=${FOREBAY:-$PWD/target/release/forebay}
inputs=$PWD/target/bench/inputs/git
scratch=$(mktemp -d /tmp/forebay-git-XXXXXX) || exit 1
trap 'rm -rf --one-file-system "$scratch"' EXIT

# The installed git is tested; of the sources only the tests' helper and templates are built.
if [ ! -e "$inputs/ready" ]; then
  mkdir -p "$inputs" && fetch_source git "$inputs" && tar -C "$inputs" --strip-components=1 -xf "$inputs"/git_*.orig.tar.* &&
    make -s -j2 -C "$inputs" CFLAGS=-O0 NO_OPENSSL=1 NO_CURL=1 NO_EXPAT=1 NO_GETTEXT=1 NO_PERL=1 NO_PYTHON=1 NO_TCLTK=1 \
      GIT-BUILD-OPTIONS t/helper/test-tool && make -s -C "$inputs/templates" && touch "$inputs/ready" || exit 1
fi 2>&1 | tail -n 5
[ -e "$inputs/ready" ] || exit 2

# What a script says at its end, and what it could not do.
cat >"$scratch/run" <<'RUN'
mkdir "$1" && cd "$2/t" || exit
for name in "${@:3}"; do
  ./"$name.sh" --root="$1" 2>&1 | grep -e '^# passed' -e '^# failed' -e '^# still' -e '^not ok' | sed "s/^/$name: /"
done
RUN
export GIT_TEST_INSTALLED NO_SVN_TESTS=1
GIT_TEST_INSTALLED=$(dirname "$(command -v git)")
mkdir "$scratch/store" "$scratch/buffer"
bash "$scratch/run" "$scratch/plain" "$inputs" "$@" >"$scratch/directly"
"$forebay" run --quiet --policy delegate=new --dir "$scratch/store" --burst-buffer "$scratch/buffer" -- \
  bash "$scratch/run" "$scratch/store/delegated" "$inputs" "$@" >"$scratch/delegated" || exit 1
grep '# ' "$scratch/delegated"
diff "$scratch/directly" "$scratch/delegated" && echo "the same in a delegated directory: $(wc -l <"$scratch/delegated") lines of $# scripts"
