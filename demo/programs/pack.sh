# A source tree is unpacked and packed again, compressed: small files are written, then read.
mkdir tree && tar -xf "$INPUT/sources.tar" -C tree
tar --sort=name --mtime=@0 -C tree -cf - . | gzip -1 --no-name >again.tar.gz
