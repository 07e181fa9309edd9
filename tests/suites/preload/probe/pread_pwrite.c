#include "probe.h"

int main(void) {
  char block[9000], got[9000];
  int fd = scratch("file");
  TELL(pwrite(fd, pattern(block, sizeof block, 3), 5000, 4096));
  TELL(lseek(fd, 0, SEEK_CUR));
  TELL(pread(fd, got, 9000, 0));
  TELL(pread(fd, got, 100, 9096));
  TELL(pread(fd, got, 100, -1));
  TELL(pwrite(fd, got, 100, -1));
  TELL(pwrite(fd, block, 3000, 100));
  TELL(pwrite(fd, block, 10, INT64_MAX - 3));
  TELL(pwrite(fd, block, 0, 100000));
  tell_size("file");
  TELL(pread64(fd, got, 9000, 50));
  tell_bytes("pread", got, 9000);
  int pipes[2];
  TELL(pipe(pipes));
  TELL(pwrite(pipes[1], "x", 1, 0));
  TELL(pread(pipes[0], got, 1, 0));
  tell_file("file");
}
