// A file whose bytes are known, and small reads of it until it is mapped.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 256, WARM = 70 };

static char expected(size_t at) { return (char)(at * 131 ^ at >> 8 ^ at >> 16); }

static int right(const char *got, size_t at, size_t length) {
  for (size_t n = 0; n < length; n++)
    if (got[n] != expected(at + n)) return 0;
  return 1;
}

static void fill(int fd, size_t from, size_t to) {
  static char bytes[PAGE];
  for (size_t at = from; at < to;) {
    size_t length = to - at < PAGE ? to - at : PAGE;
    for (size_t n = 0; n < length; n++) bytes[n] = expected(at + n);
    if (pwrite(fd, bytes, length, at) != (ssize_t)length) exit(90);
    at += length;
  }
}

static void make(void) {
  int fd = open("file", O_WRONLY | O_CREAT | O_TRUNC, 0644);
  fill(fd, 0, PAGES * PAGE);
  if (fd < 0 || close(fd)) exit(91);
}

static int mappings(void) {
  char line[1000];
  int found = 0;
  FILE *maps = fopen("/proc/self/maps", "r");
  while (fgets(line, sizeof line, maps)) found += strstr(line, " r--s ") && strstr(line, "/file");
  fclose(maps);
  return found;
}

// A descriptor of the file after so many small reads at its beginning.
static int warm(int reads) {
  static char got[PAGE];
  int fd = open("file", O_RDONLY);
  for (int n = 0; n < reads; n++)
    if (pread(fd, got, 100, n * 10) != 100 || !right(got, n * 10, 100)) exit(92);
  return fd;
}

static int check(int fd) {
  static char got[PAGE];
  return pread(fd, got, PAGE, 50) == PAGE && right(got, 50, PAGE);
}
