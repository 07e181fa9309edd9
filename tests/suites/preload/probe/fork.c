#include "probe.h"

// Parent and child share one offset.
int main(void) {
  int fd = scratch("file");
  TELL(write(fd, "parent ", 7));
  pid_t pid = fork();
  if (pid == 0) {
    TELL(write(fd, "child ", 6));
    TELL(lseek(fd, 0, SEEK_CUR));
    int own = scratch("own");
    TELL(write(own, "own", 3));
    TELL(lseek(own, -1, SEEK_CUR));
    TELL(write(own, "N", 1));
    tell_file("own");
    _exit(3);
  }
  tell_child(pid);
  TELL(write(fd, "again ", 6));
  pid = syscall(SYS_fork);
  if (pid == 0) {
    TELL(write(fd, "raw ", 4));
    TELL(close(fd));
    _exit(4);
  }
  tell_child(pid);
  TELL(write(fd, "end", 3));
  int later = scratch("later");
  TELL(write(later, "later", 5));
  pid = _Fork();
  if (pid == 0) {
    TELL(pwrite(later, "LA", 2, 0));
    _exit(5);
  }
  tell_child(pid);
  TELL(pwrite(later, "ER", 2, 3));
  tell_file("file");
  tell_file("later");
}
