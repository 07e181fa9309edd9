#include "probe.h"
#include <sys/resource.h>

// The largest file that a process may write.
int main(void) {
  char block[1000];
  int fd = scratch("file");
  struct rlimit limit = {5000, RLIM_INFINITY};
  signal(SIGXFSZ, SIG_IGN);
  TELL(write(fd, pattern(block, sizeof block, 1), sizeof block));
  TELL(setrlimit(RLIMIT_FSIZE, &limit));
  TELL(pwrite(fd, block, sizeof block, 4500));
  TELL(pwrite(fd, block, sizeof block, 5000));
  TELL(lseek(fd, 4900, SEEK_SET));
  TELL(write(fd, block, sizeof block));
  TELL(write(fd, block, sizeof block));
  TELL(lseek(fd, 0, SEEK_CUR));
  int later = scratch("later");
  TELL(pwrite(later, block, sizeof block, 4999));
  limit.rlim_cur = RLIM_INFINITY;
  TELL(prlimit(0, RLIMIT_FSIZE, &limit, NULL));
  int free = scratch("free");
  TELL(pwrite(free, block, sizeof block, 6000));
  limit.rlim_cur = 7000;
  TELL(prlimit(0, RLIMIT_FSIZE, &limit, NULL));
  TELL(pwrite(free, block, sizeof block, 6500));
  tell_file("free");
  tell_file("file");
  tell_file("later");
}
