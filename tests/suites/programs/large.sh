# One file larger than the burst buffer of this suite, and files that together are.
dd if="$INPUT/random" of=large bs=1M status=none
for n in $(seq 11); do cat "$INPUT/random" >>large; done
for n in 1 2 3 4 5 6; do cp large "copy.$n" && cmp large "copy.$n"; done
sha256sum large copy.*
rm copy.2 copy.4
