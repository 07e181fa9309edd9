# A repository is made, cloned, checked, changed and packed.
export GIT_AUTHOR_DATE=2001-02-03T04:05:06Z GIT_COMMITTER_DATE=2001-02-03T04:05:06Z GIT_CONFIG_NOSYSTEM=1 HOME=$PWD
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
git init --quiet --initial-branch=main origin
tar -xf "$INPUT/sources.tar" -C origin
git -C origin add --all && git -C origin commit --quiet --message=first
git clone --quiet --no-local origin clone
for number in 1 2 3 4 5; do
  echo "$number" >>clone/numbers && git -C clone add numbers && git -C clone commit --quiet --message="$number"
done
git -C clone gc --quiet
git -C clone push --quiet origin HEAD:changed
git -C clone fsck --full --strict 2>&1 | grep -v '^Checking' ; git -C origin fsck --full 2>&1 | grep -v '^Checking'
git -C clone status --short
git -C origin rev-parse main changed
rm -rf origin/.git clone/.git # packs depend on the number of threads
