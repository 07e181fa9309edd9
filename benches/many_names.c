// Makes COUNT empty files with names of 16 bytes in DIRECTORY. Prints how many a second: the first tenth, and the last.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
  if (argc != 3 || chdir(argv[1])) return 2;
  long count = atol(argv[2]), part = count / 10;
  double began = now(), first = 0, last = 0;
  for (long n = 0; n < count; n++) {
    char name[32];
    if (n == part) first = part / (now() - began);
    if (n == count - part) last = now();
    snprintf(name, sizeof name, "%016ld", n);
    int fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0644);
    if (fd < 0 || close(fd)) {
      perror(name);
      return 1;
    }
  }
  printf("%.0f %.0f\n", first, part / (now() - last));
  return 0;
}
