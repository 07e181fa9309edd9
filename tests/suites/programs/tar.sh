# A source tree is unpacked, packed again and compared with what went in.
mkdir unpacked && tar -xf "$INPUT/sources.tar" -C unpacked
tar -C unpacked --sort=name --mtime=@0 --owner=0 --group=0 -cf again.tar .
mkdir twice && tar -xf again.tar -C twice
diff -r unpacked twice && echo "the same"
tar -czf again.tar.gz -C unpacked . && gzip --test again.tar.gz && rm again.tar.gz
