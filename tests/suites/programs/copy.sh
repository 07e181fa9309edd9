# cp -a keeps modes, times, links, holes and attributes.
mkdir from
printf 'content\n' >from/file && chmod 640 from/file && touch -d 2001-02-03T04:05:06.789 from/file
ln from/file from/hard && ln -s file from/symbolic && mkfifo from/fifo
truncate -s 5M from/sparse && printf x | dd of=from/sparse bs=1 seek=3000000 conv=notrunc status=none
touch -d 2002-02-02T02:02:02.222 from/sparse
setfattr -n user.colour -v blue from/file
setfacl -m u:daemon:r from/file
cp -a from to
stat -c '%n %A %h %s %y' to/file to/hard to/sparse
readlink to/symbolic
[ to/file -ef to/hard ] && echo "one file, two names"
[ $(($(stat -c %b to/sparse) * 512)) -lt 2000000 ] && echo "holes are kept"
getfattr --only-values -n user.colour to/file && echo
getfacl --omit-header --numeric to/file
diff -r --no-dereference --exclude=fifo from to && echo "the same"
