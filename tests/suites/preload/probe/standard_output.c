#include "probe.h"

// A file becomes standard output and error, and ours again.
int main(void) {
  int fd = scratch("file"), kept = dup(1);
  TELL(write(fd, "before ", 7));
  if (dup2(fd, 1) != 1) return 1;
  if (write(1, "one ", 4) != 4) return 1;
  if (write(fd, "two ", 4) != 4) return 1;
  printf("three ");
  fflush(stdout);
  if (write(fd, "four ", 5) != 5) return 1;
  if (system("echo five") != 0) return 1;
  if (write(fd, "six", 3) != 3) return 1;
  dup2(kept, 1);
  TELL(lseek(fd, 0, SEEK_CUR));
  tell_file("file");
}
