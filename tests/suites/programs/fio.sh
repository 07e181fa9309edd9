# Two jobs write random blocks and verify each, by system calls, asynchronously and by mapping.
for engine in psync libaio mmap; do
  fio --name="$engine" --ioengine=$engine --iodepth=8 --numjobs=2 --rw=randwrite --bs=4k-64k --size=12m --randseed=7 \
    --verify=crc32c --verify_fatal=1 --do_verify=1 --fsync=64 --end_fsync=1 --fallocate=none \
    --output="$engine.log" >/dev/null 2>&1 && echo "$engine verified"
  rm -f "$engine.log" local-*-verify.state # timings
done
rm -f ./*.0
