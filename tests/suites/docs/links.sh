#!/usr/bin/env bash
# A link that names something in a source file is broken unless the file defines it: using it, or speaking of it, is not enough.
set -eu
cd "$(dirname "$0")/../../.."
links=$PWD/scripts/links.py
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"

cat >a.rs <<'RUST'
//! Of spoken_of.
use elsewhere::Imported;
pub(crate) const BOUND: u64 = 1;
pub struct Holder<T> {
    pub field: T,
    private: u64,
}
enum Kind {
    First,
    Second { inner: u64 },
    Third = 3,
}
macro_rules! table { ($($row:tt)*) => {}; }
table! {
    /// A row.
    Row = 35 {
        column: u64,
    }
    One = 1, Two = 2,
    "key": "a|b" = "a", words(used_by_row, A);
}
impl<T> Holder<T> {
    pub async fn method(&self, argument: u64) -> u64 {
        let made = Holder {
            given: argument,
        };
        called(made)
    }
}
RUST
printf 'def function():\n    variable = 1\n' >a.py
printf 'run() { # a function\n  word\n}\n' >a.sh

status=0
expect() { # right|broken FILE NAME...
  local file=$2 wanted=$1 name found
  shift 2
  for name; do
    echo "[it]($file#$name)" >page.md
    found=right
    "$links" page.md >/dev/null || found=broken
    [ "$found" = "$wanted" ] || { echo "$file#$name is $found"; status=1; }
  done
}
expect right a.rs BOUND Holder field private Kind First Second Third table Row One Two key method
expect broken a.rs spoken_of Imported inner column used_by_row argument made given called
expect right a.py function
expect broken a.py variable
expect right a.sh run
expect broken a.sh word
exit $status
