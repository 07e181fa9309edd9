# tar and cpio take a tree with attributes, access lists, hard links, holes, owners and times out and in.
mkdir -p from/sub/deep && umask 027
printf 'content\n' >from/file && ln from/file from/sub/hard && ln from/file from/sub/deep/harder
ln -s ../file from/sub/symbolic && ln from/sub/symbolic from/twin && mkfifo -m 604 from/fifo && mknod from/null c 1 3
chown -h 1234:4321 from/sub/symbolic && chown 1234:4321 from/file && chmod 4711 from/file && chmod 1777 from/sub
setfattr -n user.colour -v blue from/file && setfattr -n user.empty from/sub
setfacl -m u:daemon:r from/file && setfacl -m d:u:daemon:rwx from/sub && echo inherited >from/sub/inherited && mkdir from/sub/within
truncate -s 6M from/sparse && printf x | dd of=from/sparse bs=1 seek=4000000 conv=notrunc status=none
head -c 1 "$INPUT/random" >from/one && head -c 200000 "$INPUT/random" >from/many && : >from/none
for n in $(seq 60); do echo "$n" >"from/sub/deep/a name of some length that does not fit in an index by itself, number $n"; done
find from -exec touch -h -d 2001-02-03T04:05:06.789012345 {} +
look() { # DIRECTORY
  (cd "$1" && find . -type d -printf '%p %m %n %U %G %T@\n' -o -printf '%p %y %m %n %U %G %s %T@ %l\n' | sort
    getfattr -R -d -m - . 2>/dev/null | sort
    find . ! -type l -print0 | sort -z | xargs -0 getfacl --numeric
    find . -type f -print0 | sort -z | xargs -0 sha256sum)
}
look from >told
pack=(--xattrs --xattrs-include='*' --acls --numeric-owner --sort=name -S)
tar "${pack[@]}" -cf packed.tar from
tar -tvf packed.tar | sha256sum
mkdir in && tar "${pack[@]}" -xpf packed.tar -C in
look in/from | diff told - && echo "tar: the same"
[ $(($(stat -c %b in/from/sparse) * 512)) -lt 2000000 ] && echo "holes are kept"
[ in/from/file -ef in/from/sub/deep/harder ] && echo "one file, three names"
# Over what is there.
tar "${pack[@]}" -xpf packed.tar -C in && look in/from | diff told - && echo "tar, again: the same"
tar "${pack[@]}" -df packed.tar -C in && echo "tar finds no difference"
tar "${pack[@]}" -C in -cf - from | tar "${pack[@]}" -C in --one-top-level=piped -xpf - && look in/piped/from | diff told - && echo "piped: the same"
head -c 100 "$INPUT/random" >>in/from/one && rm in/from/none in/from/sub/inherited && mv in/from/many in/from/other
tar "${pack[@]}" -df packed.tar -C in 2>&1 | sed 's/^tar: //' | sort
tar "${pack[@]}" -C in --recursive-unlink --delay-directory-restore -xpf packed.tar && look in/from | diff told - && echo "over changes: the same"
rm told packed.tar
