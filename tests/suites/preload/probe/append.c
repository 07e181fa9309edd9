#include "probe.h"

int main(void) {
  int fd = open("file", O_RDWR | O_CREAT | O_APPEND, 0644), other = open("file", O_RDWR);
  TELL(write(fd, "one", 3));
  TELL(write(other, "T", 1));
  TELL(write(fd, "two", 3));
  TELL(lseek(fd, 0, SEEK_SET));
  TELL(write(fd, "three", 5));
  TELL(lseek(fd, 0, SEEK_CUR));
  TELL(pwrite(fd, "four", 4, 0));
  tell_file("file");
}
