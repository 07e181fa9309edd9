#include "probe.h"

int main(void) {
  int fd = TELL_OPEN(open("file", O_RDWR | O_CREAT | O_EXCL, 0640));
  TELL_OPEN(open("file", O_RDWR | O_CREAT | O_EXCL, 0640));
  struct stat status;
  TELL(fstat(fd, &status));
  TELL(status.st_mode);
  TELL(write(fd, "abcdef", 6));
  int again = TELL_OPEN(open64("file", O_WRONLY));
  TELL(write(again, "AB", 2));
  int at = TELL_OPEN(openat(AT_FDCWD, "file", O_RDONLY));
  char got[8];
  TELL(read(at, got, 8));
  tell_bytes("openat", got, 6);
  TELL_OPEN(open("file", O_WRONLY | O_TRUNC));
  tell_size("file");
  TELL(write(fd, "gh", 2));
  tell_file("file");
  TELL_OPEN(creat("made", 0600));
  TELL_OPEN(creat64("made", 0600));
  TELL_OPEN(open("none", O_RDWR));
  TELL_OPEN(open("none/below", O_RDWR | O_CREAT, 0600));
  TELL_OPEN(open(".", O_RDWR));
  TELL_OPEN(open((void *)8, O_RDWR));
  int path = TELL_OPEN(open("file", O_PATH));
  TELL(write(path, "x", 1));
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  int own = open(link, O_RDWR);
  TELL(write(own, "own", 3));
  TELL(write(fd, "fd", 2));
  int unnamed = TELL_OPEN(open(".", O_TMPFILE | O_RDWR, 0600));
  TELL(write(unnamed, "unnamed", 7));
  tell_file("file");
}
