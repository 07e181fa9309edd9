# Four processes write 64 MB each and read it back.
fio --name=write --filename_format='part.$jobnum' --numjobs=4 --rw=write --bs=1m --size=64m --randrepeat=1 --refill_buffers \
  --allrandrepeat=1 --end_fsync=1 --fallocate=none --minimal >/dev/null
fio --name=read --filename_format='part.$jobnum' --numjobs=4 --rw=read --bs=1m --size=64m --minimal >/dev/null
