// Through a window into a burst buffer that does not take it all: what was acknowledged is there all the same for whoever
// asks the agent, who would look past the agent is refused, and truncating and removing the file work. Prints "0 wrong".
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 65536, BLOCKS_MAX = 4096 };

static int wrong;
#define MUST(condition)                                                                            \
  do {                                                                                             \
    if (!(condition)) printf("line %d: %s (%s)\n", __LINE__, #condition, strerrorname_np(errno)), wrong++; \
  } while (0)

static char block[BLOCK], got[BLOCK];

static const char *content(long number) {
  memset(block, 1 + number % 250, BLOCK);
  return block;
}

int main(int argc, char **argv) {
  const char *filler = argv[1];
  struct stat told;
  long blocks = 0;
  int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0644);
  while (blocks < BLOCKS_MAX && write(fd, content(blocks), BLOCK) == BLOCK) blocks++;
  MUST(argc == 2 && blocks < BLOCKS_MAX && errno == ENOSPC);
  off_t size = (off_t)blocks * BLOCK;
  MUST(fstat(fd, &told) == 0 && told.st_size == size);
  MUST(stat("file", &told) == 0 && told.st_size == size);
  for (long n = 0; n < blocks; n++) MUST(pread(fd, got, BLOCK, (off_t)n * BLOCK) == BLOCK && !memcmp(got, content(n), BLOCK));
  // The kernel does not have it.
  MUST(mmap(NULL, BLOCK, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED && errno == ENOSPC);
  MUST(mmap(NULL, BLOCK, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED && errno == ENOSPC);
  int out = open("/dev/null", O_WRONLY);
  MUST(sendfile(out, fd, &(off_t){0}, BLOCK) == -1 && errno == ENOSPC);
  MUST(fsync(fd) == -1 && errno == ENOSPC);
  // A little less: still too much.
  MUST(ftruncate(fd, size - 100) == 0 && fstat(fd, &told) == 0 && told.st_size == size - 100);
  MUST(truncate("file", size - 200) == 0 && fstat(fd, &told) == 0 && told.st_size == size - 200);
  MUST(pread(fd, got, BLOCK, size - BLOCK) == BLOCK - 200 && !memcmp(got, content(blocks - 1), BLOCK - 200));
  MUST(write(fd, block, BLOCK) == -1 && errno == ENOSPC);
  // Room: everything goes on.
  MUST(truncate("file", BLOCK) == 0 && unlink(filler) == 0);
  char *map = mmap(NULL, BLOCK, PROT_READ, MAP_SHARED, fd, 0);
  MUST(map != MAP_FAILED && !memcmp(map, content(0), BLOCK));
  MUST(pwrite(fd, content(7), BLOCK, BLOCK) == BLOCK && fsync(fd) == 0);
  MUST(unlink("file") == 0 && stat("file", &told) == -1 && errno == ENOENT);
  MUST(close(fd) == 0);
  printf("%d wrong\n", wrong);
  return 0;
}
