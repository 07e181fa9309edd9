#include "probe.h"

// Size and times of a file that is being written, by name and by descriptor.
int main(void) {
  char block[50000];
  struct stat status;
  struct statx wide;
  int fd = scratch("file");
  TELL(write(fd, pattern(block, sizeof block, 1), sizeof block));
  TELL(fstat(fd, &status));
  TELL(status.st_size);
  TELL(fstatat(AT_FDCWD, "file", &status, 0));
  TELL(status.st_size);
  TELL(statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &wide));
  TELL(wide.stx_size);
  TELL(pwrite(fd, "x", 1, 99999));
  TELL(stat("file", &status));
  TELL(status.st_size);
  struct timespec times[2] = {{1000, 500}, {2000, 700}};
  TELL(futimens(fd, times));
  TELL(fstat(fd, &status));
  TELL(status.st_mtim.tv_sec);
  TELL(write(fd, "now", 3));
  TELL(fstat(fd, &status));
  TELL(status.st_mtim.tv_sec > 2000);
  TELL(futimens(fd, times));
  TELL(close(fd));
  TELL(stat("file", &status));
  TELL(status.st_mtim.tv_sec);
  TELL(status.st_mtim.tv_nsec);
  TELL(status.st_size);
}
