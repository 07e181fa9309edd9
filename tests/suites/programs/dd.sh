# Block by block: appended, overwritten, sought, cut.
dd if="$INPUT/random" of=whole bs=1M status=none
dd if="$INPUT/random" of=odd bs=4097 status=none
cmp whole odd && echo "the same"
dd if="$INPUT/random" of=odd bs=1000 count=7 skip=3 seek=11 conv=notrunc status=none
dd if="$INPUT/random" of=appended bs=64K count=3 oflag=append conv=notrunc status=none
dd if="$INPUT/random" of=appended bs=64K count=3 oflag=append conv=notrunc status=none
dd if="$INPUT/random" of=synced bs=256K count=8 oflag=dsync status=none
dd if=/dev/null of=whole bs=1 seek=1234567 status=none
dd if="$INPUT/random" of=sparse bs=4K count=2 seek=1000 conv=sparse,fsync status=none
truncate -s 10M sparse && truncate -s 3M synced
dd if=whole bs=1M status=none | sha256sum
stat -c '%n %s' ./*
