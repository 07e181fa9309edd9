#include "probe.h"

// The name goes, changes or points elsewhere while the file is being written.
int main(void) {
  char got[32];
  int fd = scratch("file");
  TELL(write(fd, "one ", 4));
  TELL(rename("file", "renamed"));
  TELL(write(fd, "two ", 4));
  TELL(link("renamed", "linked"));
  tell_file("linked");
  int other = open("linked", O_RDWR);
  TELL(read(other, got, 32));
  TELL(write(fd, "three ", 6));
  TELL(read(other, got, 32));
  TELL(unlink("renamed"));
  TELL(unlink("linked"));
  TELL(write(fd, "four", 4));
  TELL(pread(other, got, 32, 0));
  tell_bytes("unlinked", got, 18);
  int next = scratch("file");
  TELL(write(next, "new", 3));
  TELL(close(fd));
  TELL(close(other));
  tell_file("file");
}
