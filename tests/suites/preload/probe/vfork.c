#include "probe.h"

// The child of vfork runs in its parent's memory, with descriptors of its own.
int main(void) {
  int fd = scratch("file");
  TELL(write(fd, "one ", 4));
  pid_t pid = vfork();
  if (pid == 0) {
    close(fd);
    _exit(3);
  }
  tell_child(pid);
  TELL(write(fd, "two ", 4));
  pid = vfork();
  if (pid == 0) {
    dup2(fd, 1);
    close(fd);
    execl("/bin/echo", "echo", "from", "the", "child", "with", "more", "words", "than", "registers", (char *)NULL);
    _exit(127);
  }
  tell_child(pid);
  TELL(write(fd, "three", 5));
  tell_file("file");
}
