#include "probe.h"

enum { BLOCK = 4096, BLOCKS = 8 };

// Past the page cache, beside a descriptor whose writes go through a window where there are windows.
int main(void) {
  char *block = aligned_alloc(BLOCK, BLOCK), *back = aligned_alloc(BLOCK, BLOCK * BLOCKS), small[100];
  int fd = scratch("file");
  for (int n = 0; n < BLOCKS; n++) TELL(write(fd, pattern(block, BLOCK, n), BLOCK));
  int direct = open("file", O_RDWR | O_DIRECT);
  if (direct < 0) {
    say("{\"skipped\":\"O_DIRECT, which the file system below does not have\"}\n");
    return 0;
  }
  TELL(pread(direct, back, BLOCK * BLOCKS, 0));
  tell_bytes("direct, what was written before", back, BLOCK * BLOCKS);
  for (int n = 0; n < BLOCKS; n++) {
    TELL(pwrite(fd, pattern(small, sizeof small, n), sizeof small, n * BLOCK + 50));
    TELL(pread(direct, back, BLOCK, n * BLOCK));
    tell_bytes("direct, what another descriptor wrote", back, BLOCK);
    TELL(pwrite(direct, pattern(block, BLOCK, 100 + n), BLOCK, n * BLOCK));
    TELL(pread(fd, small, sizeof small, n * BLOCK + 10));
    tell_bytes("what was written directly", small, sizeof small);
  }
  TELL(pwrite(direct, block, BLOCK, BLOCK * BLOCKS));
  tell_size("file");
  TELL(lseek(direct, 0, SEEK_SET));
  TELL(read(direct, back, BLOCK * BLOCKS));
  tell_bytes("direct, in order", back, BLOCK * BLOCKS);
  TELL(fcntl(fd, F_SETFL, O_DIRECT));
  TELL(pwrite(fd, pattern(block, BLOCK, 7), BLOCK, 0));
  TELL(fcntl(fd, F_SETFL, 0));
  TELL(pwrite(fd, "no block", 8, 3));
  TELL(pread(direct, back, BLOCK, 0));
  tell_bytes("direct, after a change of flags", back, BLOCK);
  TELL(close(direct));
  // From the beginning on.
  direct = open("other", O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0644);
  for (int n = 0; n < BLOCKS; n++) TELL(write(direct, pattern(block, BLOCK, 50 + n), BLOCK));
  TELL(ftruncate(direct, BLOCK * 3 + 5));
  TELL(fsync(direct));
  tell_size("other");
  tell_file("other");
  tell_file("file");
}
