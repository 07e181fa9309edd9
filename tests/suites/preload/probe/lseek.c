#include "probe.h"

int main(void) {
  int fd = scratch("file");
  TELL(write(fd, "0123456789", 10));
  TELL(lseek(fd, 0, SEEK_CUR));
  TELL(lseek(fd, -3, SEEK_CUR));
  TELL(write(fd, "X", 1));
  TELL(lseek(fd, -1, SEEK_END));
  TELL(write(fd, "Y", 1));
  TELL(lseek(fd, 100, SEEK_END));
  TELL(write(fd, "Z", 1));
  TELL(lseek(fd, -1, SEEK_SET));
  TELL(lseek(fd, -200, SEEK_CUR));
  TELL(lseek(fd, 0, 77));
  TELL(lseek(-1, 0, SEEK_SET));
  TELL(lseek(fd, 0, SEEK_CUR));
  TELL(lseek(fd, INT64_MAX, SEEK_CUR));
  TELL(lseek64(fd, 5, SEEK_SET));
  TELL(lseek(fd, 0, SEEK_DATA));
  TELL(lseek(fd, 0, SEEK_CUR));
  TELL(lseek(fd, 1000, SEEK_DATA));
  TELL(lseek(fd, 0, SEEK_HOLE));
  int pipes[2];
  TELL(pipe(pipes));
  TELL(lseek(pipes[0], 0, SEEK_SET));
  tell_file("file");
}
