#include "probe.h"

int main(void) {
  char block[20000];
  int fd = scratch("write");
  TELL(write(fd, "hello", 5));
  TELL(write(fd, "", 0));
  TELL(write(fd, pattern(block, sizeof block, 1), sizeof block));
  tell_size("write");
  TELL(lseek(fd, 3, SEEK_SET));
  TELL(write(fd, "LO!", 3));
  TELL(lseek(fd, 0, SEEK_CUR));
  tell_file("write");
  TELL(write(-1, "x", 1));
  TELL(write(12345, "x", 1));
  int reader = open("write", O_RDONLY);
  TELL(write(reader, "x", 1));
  TELL(write(fd, (void *)8, 1));
  TELL(write(fd, block, (size_t)-1));
  int dir = open(".", O_RDONLY | O_DIRECTORY);
  TELL(write(dir, "x", 1));
  TELL(close(fd));
  TELL(write(fd, "x", 1));
  tell_file("write");
}
