# Sourced: an emulated machine that boots Debian's kernel, with two disks and persistent memory, and can be cut off from its
# power.
#
# machine_build        makes target/vm/{vmlinuz,initrd}
# machine_disks DIR [SIZE]    new disks for the burst buffer and the global store, and new persistent memory
# machine_start DIR JOB_LINE...     boots in the background; console in DIR/console, ledger in DIR/ledger.new
# machine_guest DIR JOB_LINE...     the same for a machine that sees all files of this one, at the same paths, and keeps its changes to itself

vm=$top/target/vm
PERSISTENT_MIB=128
PERSISTENT_DATA_MIB=2 # before it the guest's kernel describes the namespace
MACHINE_MODULES="virtio_pci virtio_blk crc32c_generic ext4 fuse nfsd nfsv4 nfit nd_pmem 9p 9pnet_virtio overlay loop veth"

machine_library_closure() { # EXECUTABLE...
  ldd "$@" 2>/dev/null | grep -o '/[^ ]*' | grep -v ':$' | sort -u
}

machine_build() {
  local kernel package root=$vm/root modules
  "$top/scripts/bootstrap.sh" qemu-system-x86 busybox-static cpio kmod e2fsprogs || return
  mkdir -p "$vm"
  if [ ! -d "$vm/kernel/boot" ]; then
    package=$(apt-cache depends linux-image-amd64 | sed -n 's/.*Depends: //p' | head -n 1)
    (cd "$vm" && rm -f ./*.deb && apt-get download -q "$package" >/dev/null 2>&1 && dpkg -x ./*.deb kernel && rm -f ./*.deb) || return
  fi
  kernel=$(basename "$vm"/kernel/lib/modules/*)
  depmod -b "$vm/kernel" "$kernel" || return
  ln -sf "kernel/boot/vmlinuz-$kernel" "$vm/vmlinuz"

  rm -rf "$root" && mkdir -p "$root"/{bin,modules,proc,sys,dev,lib64,tmp}
  gcc -O2 -Wall -o "$root/bin/ledger" "$here/ledger.c" && gcc -O2 -Wall -o "$root/bin/beside" "$here/beside.c" || return
  cp "$(command -v busybox)" "$root/bin/busybox"
  ln -s busybox "$root/bin/sh"
  strip -o "$root/bin/forebay" "$forebay" || return
  strip -o "$root/bin/fsx" "$tools/bin/fsx" || return
  strip -o "$root/bin/libforebay_preload.so" "$(dirname "$forebay")/libforebay_preload.so" || return
  machine_library_closure "$forebay" "$root/bin/libforebay_preload.so" "$root/bin/ledger" "$tools/bin/fsx" | while read -r library; do
    mkdir -p "$root$(dirname "$library")" && cp -L "$library" "$root$library"
  done
  for modules in $MACHINE_MODULES; do
    modprobe --dirname "$vm/kernel" --set-version "$kernel" --show-depends "$modules"
  done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | while read -r module; do
    cp "$module" "$root/modules/" && basename "$module"
  done >"$root/modules/order"
  cp "$here/init" "$here/programs" "$root/bin/" && mv "$root/bin/init" "$root/init" && chmod 755 "$root/init" "$root/bin/programs"
  (cd "$root" && find . | cpio --quiet -o -H newc) >"$vm/initrd"
}

# Builds it for a suite, with the directory `dir` for what it needs; if it cannot be built, that is told and nothing is tested.
machine_or_finish() {
  if ! { install_tool fsx 0.3.2 && machine_build; } >"$scratch/build.log" 2>&1; then
    tail -n 5 "$scratch/build.log"
    echo "not tested: the machine cannot be built"
    finish
  fi
  dir=$scratch/machine
  mkdir "$dir"
}

machine_disks() { # DIR [SIZE]
  local disk
  for disk in burst global; do
    rm -f "$1/$disk" && truncate -s "${2:-256M}" "$1/$disk" && mkfs.ext4 -q -F "$1/$disk" || return
  done
  rm -f "$1/persistent" && truncate -s ${PERSISTENT_MIB}M "$1/persistent" &&
    mkfs.ext4 -q -F -b 4096 -E offset=$((PERSISTENT_DATA_MIB << 20)) "$1/persistent" $(((PERSISTENT_MIB - 2 * PERSISTENT_DATA_MIB) * 256)) || return
  : >"$1/ledger"
}

machine_guest() { # DIR JOB_LINE...
  local dir=$1
  shift
  machine_memory=3G machine_boot "$dir" "$@" -- -smp 2 -virtfs local,path=/,mount_tag=share,security_model=none,readonly=on,multidevs=remap
}

machine_start() { # DIR JOB_LINE...
  local dir=$1
  shift
  machine_boot "$dir" "$@" -- \
    -object "memory-backend-file,id=persistent,share=on,mem-path=$dir/persistent,size=${PERSISTENT_MIB}M" -device nvdimm,memdev=persistent
}

machine_boot() { # DIR JOB_LINE... -- QEMU_OPTION...
  local dir=$1 extra=$1/extra job=()
  shift
  while [ "$1" != -- ]; do job+=("$1") && shift; done
  shift
  rm -rf "$extra" && mkdir "$extra"
  printf '%s\n' "${job[@]}" >"$extra/job"
  cp "$dir/ledger" "$extra/ledger.old"
  { cat "$vm/initrd" && (cd "$extra" && find . -type f | cpio --quiet -o -H newc); } >"$dir/initrd"
  : >"$dir/console"
  : >"$dir/ledger.new"
  # shellcheck disable=SC2086
  qemu-system-x86_64 -accel tcg -cpu max -M pc,nvdimm=on -m "${machine_memory:-512M}",slots=1,maxmem=4G -nic none -nodefaults -no-reboot -display none \
    -kernel "$vm/vmlinuz" -initrd "$dir/initrd" -append "console=ttyS0 quiet panic=-1 loglevel=4" \
    "$@" -serial "file:$dir/console" -serial "file:$dir/ledger.new" \
    -drive "file=$dir/burst,format=raw,if=virtio,cache=writeback" -drive "file=$dir/global,format=raw,if=virtio,cache=writeback" \
    </dev/null >"$dir/qemu.log" 2>&1 &
  machine=$!
}

machine_runs() { kill -0 "$machine" 2>/dev/null; }

# The power is cut: what was only in the machine's memory is gone, but for what was stored to the persistent part of it.
machine_cut() {
  kill -9 "$machine" 2>/dev/null
  wait "$machine" 2>/dev/null
  cat "$1/ledger.new" >>"$1/ledger" # a last line cut short says nothing: its end is missing
  [ -z "$(tail -c 1 "$1/ledger")" ] || sed -i '$d' "$1/ledger"
}

# Waits until the console says so, or the machine ends.
machine_says() { # DIR TEXT SECONDS
  local tries
  for tries in $(seq $(($3 * 20))); do
    grep -q "$2" "$1/console" && return 0
    machine_runs || break
    sleep 0.05
  done
  grep -q "$2" "$1/console"
}
