# Programs that load no library, and one that makes its system calls by itself as Go programs do, write and read what others
# have written and read.
cat >static.c <<'C'
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifdef RAW
#define open(...) syscall(SYS_openat, AT_FDCWD, __VA_ARGS__)
#define pwrite(fd, bytes, length, at) syscall(SYS_pwrite64, fd, bytes, length, at)
#define pread(fd, bytes, length, at) syscall(SYS_pread64, fd, bytes, length, at)
#define close(fd) syscall(SYS_close, fd)
#endif

enum { BLOCK = 10000, BLOCKS = 64, THREADS = 4 };
static int fd;

static void *writer(void *number) {
  char block[BLOCK];
  for (long n = (long)number; n < BLOCKS; n += THREADS) {
    memset(block, 'a' + n % 26, BLOCK);
    if (pwrite(fd, block, BLOCK, n * BLOCK) != BLOCK) abort();
  }
  return NULL;
}

int main(int argc, char **argv) {
  pthread_t threads[THREADS];
  char block[BLOCK];
  long sum = 0;
  fd = open(argv[1], O_RDWR | O_CREAT, 0644);
  if (fd < 0) return 1;
  for (long n = 0; n < THREADS; n++) pthread_create(&threads[n], NULL, writer, (void *)n);
  for (long n = 0; n < THREADS; n++) pthread_join(threads[n], NULL);
  for (long n = 0; n < BLOCKS; n++) {
    if (pread(fd, block, BLOCK, n * BLOCK) != BLOCK) return 2;
    for (int at = 0; at < BLOCK; at++) sum += block[at];
  }
  char *map = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (map == MAP_FAILED) return 3;
  memcpy(map + 100, "by a mapping", 12);
  close(fd);
  printf("%s %ld %.12s\n", argv[1], sum, map + 100);
  return 0;
}
C
gcc -O1 -static -pthread -o plain static.c && gcc -O1 -static -pthread -DRAW -o raw static.c
for name in plain raw; do
  ./$name $name.out
  dd if=/dev/zero of=$name.out bs=7777 seek=9 count=5 conv=notrunc status=none
  ./$name both.out
  dd if=$name.out bs=1000 skip=60 count=40 status=none | sha256sum
done
# A program with the library writes while one without it has the file open, and the other way round.
python3 - <<'PYTHON'
import os, subprocess
out = os.open("mixed", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
for n in range(40):
    os.write(out, bytes([65 + n % 26]) * 9000)
    if n == 20:
        print(subprocess.run(["./plain", "mixed"], stdout=subprocess.PIPE).stdout)
os.close(out)
PYTHON
# Go, where there is a compiler.
if command -v go >/dev/null; then
  mkdir go && cat >go/main.go <<'GO'
package main

import (
	"bytes"
	"os"
	"sync"
)

func main() {
	file, err := os.OpenFile("by_go", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0644)
	if err != nil {
		panic(err)
	}
	var all sync.WaitGroup
	for n := 0; n < 32; n++ {
		all.Add(1)
		go func() {
			defer all.Done()
			if _, err := file.WriteAt(bytes.Repeat([]byte{byte('a' + n%26)}, 9999), int64(n)*9999); err != nil {
				panic(err)
			}
		}()
	}
	all.Wait()
	if err := file.Close(); err != nil {
		panic(err)
	}
}
GO
  made=$(mktemp -d)
  (cd go && GO111MODULE=off GOFLAGS= CGO_ENABLED=0 timeout 60 go build -o "$made/program" main.go) && "$made/program"
  rm -rf "$made" go
else
  python3 -c 'open("by_go", "wb").write(b"".join(bytes([97 + n % 26]) * 9999 for n in range(32)))'
fi
sha256sum by_go
rm plain raw
