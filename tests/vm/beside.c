// What a program with a window writes to a file is seen at once by others that have read it before or have it mapped, also
// when it goes past their page cache because the window has ended. On a kernel before 6.6.
//
//   beside FILE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, ROUNDS = 50, HAS = 2, TRIES = 200 };

struct forebay_window { // docs/window.md, the ioctl
  uint32_t size, command;
  uint64_t bytes, token;
  uint32_t state, version;
};

static void check(int holds, const char *what) {
  if (holds) return;
  printf("beside: %s: %s\n", what, strerror(errno));
  exit(1);
}

static char *map(int fd, int access) { return mmap(NULL, 8 * PAGE, access, MAP_SHARED, fd, 0); }

static void expect(int fd, const volatile char *mapped, long at, char byte, const char *what) {
  char read_byte;
  check(pread(fd, &read_byte, 1, at) == 1 && read_byte == byte, what);
  check(mapped[at] == byte, what);
}

int main(int count, char **arguments) {
  struct forebay_window window = {.size = sizeof window, .version = 1};
  char page[PAGE] = {0};
  check(count == 2, "beside FILE");
  int writer = open(arguments[1], O_WRONLY | O_CREAT, 0644);
  check(writer >= 0, "open");
  for (int at = 0; at < 8; at++) check(pwrite(writer, page, PAGE, at * PAGE) == PAGE, "write");
  if (getenv("FOREBAY_WINDOW_SOCKET"))
    check(ioctl(writer, _IOWR(0xFB, 1, struct forebay_window), &window) == 0 && (window.state & HAS), "it has no window");
  check(pwrite(writer, "w", 1, 0) == 1, "write to the window");
  int reader = open(arguments[1], O_RDONLY), other = open(arguments[1], O_RDWR);
  check(reader >= 0 && other >= 0, "open beside");
  volatile char *mapped = map(reader, PROT_READ);
  check(mapped != MAP_FAILED, "map");
  expect(reader, mapped, 0, 'w', "what the window had");
  for (int round = 0; round < ROUNDS; round++) {
    char byte = 'a' + round % 26;
    check(pwrite(writer, &byte, 1, 0) == 1, "write beside");
    expect(reader, mapped, 0, byte, "what was written beside a reader");
    check(pwrite(other, &byte, 1, PAGE) == 1, "write beside");
    expect(reader, mapped, PAGE, byte, "what another wrote beside a reader");
  }
  // A page that it stored to would be written over what goes past it.
  char *stored = map(other, PROT_READ | PROT_WRITE);
  check(stored == MAP_FAILED ? errno == ENODEV : !getenv("FOREBAY_WINDOW_SOCKET"), "map for writing");
  close(writer);
  close(other);
  for (int try = 0; stored == MAP_FAILED && try < TRIES; try++) { // the kernel tells of a close when it has time
    other = open(arguments[1], O_RDWR);
    stored = map(other, PROT_READ | PROT_WRITE);
    close(other);
    usleep(10000);
  }
  check(stored != MAP_FAILED, "map for writing when the writer is gone");
  stored[2 * PAGE] = 's';
  expect(reader, mapped, 2 * PAGE, 's', "what was stored");
  return 0;
}
