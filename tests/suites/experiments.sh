#!/usr/bin/env bash
# The experiment book in its short form: each page of experiments/ runs from its bed to its figures, what was drained is what was written,
# and what does not depend on the machine keeps its bar. Bars of rates are judged by `make experiments` on a quiet machine; here
# what misses one twice is only told.
#
#   tests/suites/experiments.sh [ID...]        BIN=target/debug
cd "$(dirname "$0")/../.." || exit 1
. tests/suites/report.sh

PAGE_SECONDS_MAX=100
bin=${BIN:-target/debug}
SIMULATED="E0-8 E4-2" # in the model's own time: the same on every machine

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

page() { # ID FILE
  mkdir -p "$scratch/$1" && cp "$2" "$scratch/$1/"
  timeout --kill-after=5 $PAGE_SECONDS_MAX "$bin/forebay" limits experiments --quick --book "$scratch/$1" \
    --results "$scratch/$1.jsonl" >"$scratch/$1.log" 2>&1 </dev/null
}

# 0 where every figure is there and none that the machine cannot change misses its bar.
figures() { # ID
  python3 - "$scratch/$1.jsonl" <<'PYTHON'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
simulated = [row for row in rows if "simulated" in row["case"] or "controls" in row["case"]]
missed = [row["case"] for row in simulated
          if row["value"] < (row["bar"] or 0) or row["bar_most"] is not None and row["value"] > row["bar_most"]]
sys.exit("missed: " + ", ".join(missed) if missed else 0 if rows else "no figure")
PYTHON
}

for file in experiments/*.toml; do
  id=$(basename "$file" .toml)
  [ $# = 0 ] || [[ " $* " = *" $id "* ]] || continue
  page "$id" "$file"
  status=$?
  if [ $status != 0 ] && [[ " $SIMULATED " != *" $id "* ]]; then
    echo "$id missed a bar or had a cell that does not count (exit status $status) at a load of $(cut -d' ' -f1 /proc/loadavg); again"
    tail -n 3 "$scratch/$id.log"
    rm -f "$scratch/$id.jsonl"
    page "$id" "$file"
    status=$?
  fi
  if [ $status -gt 1 ] || { [ $status = 1 ] && [[ " $SIMULATED " = *" $id "* ]]; }; then
    fail "$id" "exit status $status"
    tail -n 20 "$scratch/$id.log"
  elif ! said=$(figures "$id" 2>&1); then
    fail "$id" "$said"
    tail -n 20 "$scratch/$id.log"
  else
    [ $status = 1 ] && cat "$scratch/$id.log"
    pass "$id"
  fi
done
finish
