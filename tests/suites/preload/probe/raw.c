#include "probe.h"

// System calls that no library sees, between those it sees.
int main(void) {
  char got[64];
  int fd = scratch("file");
  TELL(write(fd, "seen ", 5));
  TELL(syscall(SYS_write, fd, "unseen ", 7));
  TELL(write(fd, "seen ", 5));
  TELL(syscall(SYS_pwrite64, fd, "X", 1, 2));
  TELL(pwrite(fd, "Y", 1, 3));
  TELL(syscall(SYS_lseek, fd, 0, SEEK_SET));
  TELL(read(fd, got, 64));
  tell_bytes("read", got, 17);
  TELL(syscall(SYS_read, fd, got, 64));
  int same = syscall(SYS_dup, fd);
  TELL(write(same, "dup ", 4));
  TELL(write(fd, "end", 3));
  tell_file("file");
}
