#include "probe.h"
#include <sys/file.h>

int main(void) {
  int fd = scratch("file"), other = open("file", O_RDWR);
  TELL(flock(fd, LOCK_EX));
  TELL(write(fd, "locked", 6));
  TELL(flock(other, LOCK_EX | LOCK_NB));
  TELL(flock(fd, LOCK_UN));
  TELL(flock(other, LOCK_EX | LOCK_NB));
  char got[8];
  TELL(read(other, got, 8));
  struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_CUR, .l_start = 0, .l_len = 10};
  TELL(fcntl(fd, F_SETLK, &range));
  struct flock asked = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 0};
  pid_t pid = fork();
  if (pid == 0) {
    TELL(fcntl(other, F_GETLK, &asked));
    TELL(asked.l_start);
    TELL(asked.l_len);
    _exit(0);
  }
  tell_child(pid);
  TELL(fcntl(-1, F_GETFD));
  TELL(fcntl(fd, 9999, 0));
}
