# rsync copies a tree with hard links, attributes and access lists in, follows its changes, and copies it out again.
made=$(mktemp -d)
mkdir "$made/from" "$made/out" && tar -xf "$INPUT/sources.tar" -C "$made/from" docs scripts
(
  cd "$made/from" && chmod 640 docs/limits.md && ln docs/limits.md scripts/linked && ln docs/limits.md again && mkdir empty && chmod 2751 empty
  ln -s docs/limits.md symbolic && ln -s nowhere dangling && mkfifo fifo && ln fifo docs/fifo && truncate -s 3M sparse
  printf end >>sparse
  setfattr -n user.colour -v blue docs && setfattr -n user.size -v "$(printf '%0400d' 7)" again
  setfacl -m u:daemon:rx -m d:g:daemon:rwx scripts && setfacl -m u:daemon:r scripts/linked
  chown 1234:4321 symbolic --no-dereference && chown 1234:4321 scripts/test.sh && chmod 4755 scripts/test.sh
  touch -h -d 1999-12-31T23:59:59.123456789 symbolic && touch -d 2001-02-03T04:05:06.5 docs && touch -d 1970-01-01T00:00:01 empty
)
# rsync tells whether times differ by a second.
date_directories() { find "$1" -type d -exec touch -d "200$2-01-01T00:00:00.1" {} +; }
copy() { rsync -aHXAS --delete --itemize-changes "$@" | sort; }
date_directories "$made/from" 1
copy "$made/from/" in/ | sha256sum
copy "$made/from/" in/
(
  cd "$made/from" && rm again && echo more >>docs/semantics.md && mv scripts/bootstrap.sh docs/moved && rm -r empty && mkdir -p empty/new
  ln scripts/docs.sh linked && setfattr -x user.colour docs && setfacl -b scripts/linked && chmod 600 docs/limits.md
  touch -d 2002-02-02T02:02:02.2 docs/limits.md docs/semantics.md && ln -sf elsewhere dangling && touch -h -d 2003-03-03 dangling
)
date_directories "$made/from" 2
copy "$made/from/" in/
copy "$made/from/" in/
copy in/ "$made/out/" | sha256sum
copy in/ "$made/out/"
echo "changed within" >in/docs/moved && ln in/docs/moved in/moved && rm -r in/empty && touch -d 2004-04-04 in/moved
date_directories in 3
copy in/ "$made/out/"
copy --checksum in/ "$made/out/"
copy --checksum "$made/out/" in/
copy --link-dest="$PWD/in" in/ second/ | sha256sum
stat -c '%n %h' in/linked second/linked in/moved
rm -r "$made"
