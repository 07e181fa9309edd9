#define _FORTIFY_SOURCE 2
#include "probe.h"

// What -D_FORTIFY_SOURCE makes of these calls.
__attribute__((noinline)) static void all(size_t length, int flags) {
  char got[100];
  int fd = TELL_OPEN(open("file", flags));
  TELL(write(fd, "fortified", 9));
  TELL(pread(fd, got, length, 0));
  tell_bytes("pread", got, 9);
  TELL(pread64(fd, got, length, 3));
  TELL(lseek(fd, 1, SEEK_SET));
  TELL(read(fd, got, length));
  tell_bytes("read", got, 8);
  TELL_OPEN(openat(AT_FDCWD, "file", flags));
  TELL_OPEN(open64("file", flags));
}

int main(void) {
  close(scratch("file"));
  volatile size_t length = 50;
  volatile int flags = O_RDWR;
  all(length, flags);
}
