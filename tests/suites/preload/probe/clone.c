#include "probe.h"
#include <sched.h>

static int child(void *fd) {
  TELL(write(*(int *)fd, "clone ", 6));
  return 7;
}

int main(void) {
  static char stack[1 << 18] __attribute__((aligned(64)));
  int fd = scratch("file");
  TELL(write(fd, "before ", 7));
  pid_t pid = clone(child, stack + sizeof stack, SIGCHLD, &fd, NULL, NULL, NULL);
  tell_child(pid);
  TELL(write(fd, "between ", 8));
  pid = clone(child, stack + sizeof stack, SIGCHLD | CLONE_VM, &fd, NULL, NULL, NULL);
  tell_child(pid);
  TELL(write(fd, "end", 3));
  tell_file("file");
}
