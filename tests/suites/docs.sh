#!/usr/bin/env bash
# Whether what is documented is there: every link of the documentation, the commands, options, policies and metrics that it names, and
# the book that is made of it. Where mdBook cannot be installed the book is not tested.
cd "$(dirname "$0")" || exit 1
. ./report.sh
cd ../..

log=$(mktemp)
trap 'rm -f "$log"' EXIT

check() { # NAME COMMAND...
  local name=$1
  shift
  if "$@" >"$log" 2>&1; then
    pass "$name"
  else
    fail "$name" "$(tail -n 1 "$log")"
    cat "$log"
  fi
}

check docs::links scripts/docs.sh links
check docs::defined tests/suites/docs/links.sh
for what in commands policies metrics; do
  check "docs::$what" tests/suites/docs/documented.py "$what"
done
scripts/docs.sh mdbook >"$log" 2>&1
case $? in
  0) check docs::book scripts/docs.sh ;;
  69) echo "not tested in docs::book: mdBook cannot be installed; target/tools/mdbook.log says why" ;;
  *) fail docs::book "$(tail -n 1 "$log")" ;;
esac
finish
