#include "probe.h"

// Duplicates share one offset.
int main(void) {
  int fd = scratch("file"), other, third;
  TELL(write(fd, "abc", 3));
  other = TELL_OPEN(dup(fd));
  TELL(write(other, "def", 3));
  TELL(write(fd, "ghi", 3));
  TELL(lseek(other, 0, SEEK_CUR));
  third = TELL_OPEN(fcntl(fd, F_DUPFD, 100));
  TELL(third >= 100);
  TELL(write(third, "jkl", 3));
  TELL(close(fd));
  TELL(write(other, "mno", 3));
  TELL(lseek(third, 0, SEEK_CUR));
  int high = TELL_OPEN(dup2(third, 200));
  TELL(write(high, "pqr", 3));
  TELL(dup2(high, high) == high);
  TELL(write(high, "st", 2));
  TELL_OPEN(dup3(high, high, 0));
  TELL_OPEN(dup3(high, 201, O_CLOEXEC));
  TELL(fcntl(201, F_GETFD));
  TELL_OPEN(dup2(999, 201));
  TELL(write(201, "uv", 2));
  TELL_OPEN(dup(-1));
  int plain = scratch("second");
  TELL_OPEN(dup2(plain, 201));
  TELL(write(201, "second", 6));
  TELL(write(high, "w", 1));
  TELL_OPEN(dup2(high, plain));
  TELL(write(plain, "x", 1));
  TELL(close(high));
  TELL(close(third));
  TELL(write(other, "y", 1));
  TELL(write(plain, "z", 1));
  tell_file("file");
  tell_file("second");
}
