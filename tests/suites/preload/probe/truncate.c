#include "probe.h"

int main(void) {
  char block[10000];
  int fd = scratch("file");
  TELL(write(fd, pattern(block, sizeof block, 4), sizeof block));
  TELL(ftruncate(fd, 5000));
  tell_size("file");
  TELL(write(fd, "far", 3));
  tell_size("file");
  TELL(ftruncate(fd, 12000));
  TELL(truncate("file", 100));
  TELL(pwrite(fd, "!", 1, 200));
  TELL(ftruncate(fd, -1));
  TELL(ftruncate64(fd, 300));
  int reader = open("file", O_RDONLY);
  TELL(ftruncate(reader, 1));
  TELL(posix_fallocate(fd, 250, 500));
  TELL(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 10, 50));
  TELL(write(fd, "end", 3));
  tell_size("file");
  tell_file("file");
}
