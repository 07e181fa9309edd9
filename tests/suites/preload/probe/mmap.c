#include "probe.h"

// It is mapped by one open file and written by another.
static void beside(void) {
  static char block[8192];
  int fd = scratch("beside"), other = open("beside", O_WRONLY), missed = 0;
  for (int n = 0; n < 8; n++) write(other, block, sizeof block);
  char *map = mmap(NULL, 8 * sizeof block, PROT_READ, MAP_SHARED, fd, 0);
  for (int n = 0; n < 8; n++) {
    memset(block, 'a' + n, sizeof block);
    pwrite(other, block, sizeof block, n * sizeof block);
    missed += memcmp(map + n * sizeof block, block, sizeof block) != 0;
  }
  TELL(missed);
  tell_file("beside");
}

int main(void) {
  beside();
  char block[16384], got[16384];
  int fd = scratch("file");
  TELL(write(fd, pattern(block, sizeof block, 6), sizeof block));
  char *map = mmap(NULL, sizeof block, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  TELL(map == MAP_FAILED);
  tell_bytes("map", map, sizeof block);
  TELL(pwrite(fd, "written", 7, 100));
  tell_bytes("map", map + 90, 30);
  memcpy(map + 9000, "stored", 6);
  TELL(pread(fd, got, 30, 8990));
  tell_bytes("pread", got, 30);
  TELL(write(fd, "end", 3));
  TELL(msync(map, sizeof block, MS_SYNC));
  TELL(munmap(map, sizeof block));
  TELL(pwrite(fd, "after", 5, 200));
  char *own = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
  tell_bytes("private", own + 195, 20);
  TELL(mmap(NULL, 4096, PROT_READ, MAP_SHARED, -1, 0) == MAP_FAILED);
  TELL(mmap(NULL, 0, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED);
  TELL(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
  tell_file("file");
}
