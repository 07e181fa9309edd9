// Makes COUNT writes of BYTES, 20 of 8192 unless told otherwise, and prints how many bytes the window has then, 0 for none:
// the ioctl of docs/window.md.
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
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

int main(int argc, char **argv) {
  static char block[1 << 20], got[1 << 20];
  ssize_t bytes = argc > 2 ? atoi(argv[1]) : 8192;
  int count = argc > 2 ? atoi(argv[2]) : 20;
  struct forebay_window ask = {.size = sizeof ask, .version = 1};
  int fd = open("windowed", O_WRONLY | O_CREAT | O_TRUNC, 0644);
  for (int n = 0; n < count; n++) {
    memset(block, 'a' + n, bytes);
    if (write(fd, block, bytes) != bytes) return 1;
  }
  int has = ioctl(fd, FOREBAY_WINDOW, &ask) == 0 && ask.state & HAS;
  // What was acknowledged is there for another open, which ends the window.
  int other = open("windowed", O_RDONLY);
  for (int n = 0; n < count; n++) {
    memset(block, 'a' + n, bytes);
    if (read(other, got, bytes) != bytes || memcmp(block, got, bytes)) return 2;
  }
  printf("%llu\n", has ? (unsigned long long)ask.bytes : 0);
  return 0;
}
