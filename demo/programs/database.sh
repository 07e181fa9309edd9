# An SQLite database takes a hundred transactions, then an index and a query.
{
  echo "CREATE TABLE t (n INTEGER PRIMARY KEY, word TEXT);"
  for n in $(seq 100); do
    echo "BEGIN; WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 200) INSERT INTO t (word) SELECT printf('%d-%d-%0100d', $n, i, i) FROM c; COMMIT;"
  done
  echo "CREATE INDEX words ON t (word); PRAGMA integrity_check; SELECT count(*), max(word) FROM t;"
} | sqlite3 data.db
