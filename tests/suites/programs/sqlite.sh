# A database takes transactions of several processes, with a rollback journal and with a write-ahead log.
for mode in delete wal; do
  database=$mode.db
  sqlite3 "$database" "PRAGMA journal_mode=$mode; CREATE TABLE t (writer INTEGER, n INTEGER, filler TEXT);"
  for writer in 1 2; do
    {
      echo ".timeout 60000"
      for n in $(seq 60); do
        echo "BEGIN IMMEDIATE; INSERT INTO t VALUES ($writer, $n, printf('%0500d', $n)); COMMIT;"
      done
    } | sqlite3 "$database" &
  done
  wait
  sqlite3 "$database" "PRAGMA integrity_check; SELECT writer, count(*), sum(n), sum(length(filler)) FROM t GROUP BY writer;"
  sqlite3 "$database" "DELETE FROM t WHERE n % 2; VACUUM; PRAGMA integrity_check; PRAGMA journal_mode=delete;"
  sqlite3 "$database" "SELECT * FROM t ORDER BY writer, n;" | sha256sum
  rm "$database" # its pages stand in the order in which the writers came
done
