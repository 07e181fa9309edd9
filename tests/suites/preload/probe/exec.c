#include "probe.h"

// The program goes on as another, which finds descriptor and offset.
int main(int count, char **words) {
  if (count > 1) {
    int fd = atoi(words[1]);
    TELL(write(fd, "new ", 4));
    TELL(lseek(fd, 0, SEEK_CUR));
    tell_file("file");
    int own = scratch("own");
    TELL(write(own, "own", 3));
    TELL(write(fd, "end", 3));
    tell_file("own");
    tell_file("file");
    return 0;
  }
  int fd = scratch("file");
  char number[16];
  snprintf(number, sizeof number, "%d", fd);
  TELL(write(fd, "old ", 4));
  TELL(execl("/none", "none", (char *)NULL));
  TELL(write(fd, "still ", 6));
  TELL(lseek(fd, 0, SEEK_CUR));
  execl(words[0], words[0], number, (char *)NULL);
  return 1;
}
