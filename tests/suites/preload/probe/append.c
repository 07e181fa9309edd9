#include "probe.h"

// At the end, from when the descriptor says so. (That it says so no more is not for here: the kernel does not hear of it where
// it writes a replica by itself.)
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
  TELL(fcntl(other, F_SETFL, O_RDWR | O_APPEND));
  TELL(write(other, "six", 3));
  TELL(lseek(other, 0, SEEK_CUR));
  tell_file("file");
  // After many writes, by the descriptor itself, and by a duplicate.
  for (int by_duplicate = 0; by_duplicate < 2; by_duplicate++) {
    int many = scratch("many"), same = dup(many);
    for (int n = 0; n < 10; n++) TELL(write(many, "part ", 5));
    TELL(fcntl(by_duplicate ? same : many, F_SETFL, O_RDWR | O_APPEND));
    TELL(lseek(many, 0, SEEK_SET));
    TELL(write(many, "end", 3));
    TELL(lseek(many, 0, SEEK_CUR));
    TELL(pwrite(many, "!", 1, 2));
    tell_file("many");
    close(many);
    close(same);
  }
}
