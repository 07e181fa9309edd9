# This repository is cloned, checked and packed.
export GIT_COMMITTER_DATE=2001-02-03T04:05:06Z GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b GIT_CONFIG_NOSYSTEM=1
git config --global --replace-all safe.directory '*'
git config --global pack.threads 1
git clone --quiet --no-local "$TOP" clone
git -C clone fsck --full --strict >/dev/null 2>&1
git -C clone repack -adq
git -C clone status --short
