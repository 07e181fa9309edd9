# Sourced by suites: one line for each fact, and the totals in the form that scripts/test.sh adds up.
set -u
passed_count=0 failed_count=0

pass() { # NAME
  passed_count=$((passed_count + 1))
  echo "test $1 ... ok"
}

fail() { # NAME REASON
  failed_count=$((failed_count + 1))
  echo "test $1 ... FAILED: $2"
}

finish() {
  local verdict=ok
  [ "$failed_count" = 0 ] || verdict=FAILED
  echo "test result: $verdict. $passed_count passed; $failed_count failed"
  [ "$failed_count" = 0 ]
  exit
}
