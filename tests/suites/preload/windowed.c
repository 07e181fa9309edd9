// Writes until a window is worth it, and prints how many bytes it has, 0 for none: the ioctl of docs/window.md.
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

struct forebay_window {
  uint32_t size, command;
  uint64_t bytes, token;
  uint32_t state, version;
};
#define FOREBAY_WINDOW _IOWR(0xFB, 1, struct forebay_window)
enum { HAS = 2 };

int main(void) {
  char block[8192], got[8192];
  struct forebay_window ask = {.size = sizeof ask, .version = 1};
  int fd = open("windowed", O_WRONLY | O_CREAT | O_TRUNC, 0644);
  for (int n = 0; n < 20; n++) {
    memset(block, 'a' + n, sizeof block);
    if (write(fd, block, sizeof block) != sizeof block) return 1;
  }
  int has = ioctl(fd, FOREBAY_WINDOW, &ask) == 0 && ask.state & HAS;
  // What was acknowledged is there for another open, which ends the window.
  int other = open("windowed", O_RDONLY);
  for (int n = 0; n < 20; n++) {
    memset(block, 'a' + n, sizeof block);
    if (read(other, got, sizeof got) != sizeof got || memcmp(block, got, sizeof got)) return 2;
  }
  printf("%llu\n", has ? (unsigned long long)ask.bytes : 0);
  return 0;
}
