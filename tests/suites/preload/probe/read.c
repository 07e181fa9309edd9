#include "probe.h"

int main(void) {
  char block[9000], got[9000];
  int fd = scratch("read");
  TELL(write(fd, pattern(block, sizeof block, 2), sizeof block));
  TELL(read(fd, got, 10));
  TELL(lseek(fd, 0, SEEK_SET));
  TELL(read(fd, got, 4000));
  TELL(read(fd, got + 4000, 8000 - 4000));
  TELL(read(fd, got + 8000, 5000 - 4000));
  tell_bytes("read", got, sizeof got);
  TELL(read(fd, got, 1));
  TELL(read(fd, got, 0));
  TELL(lseek(fd, 8999, SEEK_SET));
  TELL(read(fd, got, 100));
  TELL(read(-1, got, 1));
  int writer = open("read", O_WRONLY);
  TELL(read(writer, got, 1));
  TELL(lseek(fd, 0, SEEK_SET));
  TELL(read(fd, (void *)8, 1));
  int dir = open(".", O_RDONLY | O_DIRECTORY);
  TELL(read(dir, got, 1));
}
