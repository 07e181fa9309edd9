#include "probe.h"

// What was written to a descriptor that stays is seen by whoever maps it next, whichever others were closed.
static void keeps_one(void) {
  static char block[8192];
  int fd = scratch("kept");
  memset(block, 'k', sizeof block);
  for (int n = 0; n < 8; n++) write(fd, block, sizeof block);
  TELL(close_range(600, ~0U, 0));
  char *seen = mmap(NULL, 8 * sizeof block, PROT_READ, MAP_SHARED, fd, 0);
  tell_bytes("seen", seen, 8 * sizeof block);
  TELL(write(fd, "more", 4));
  tell_file("kept");
}

int main(void) {
  pid_t pid = fork();
  if (pid == 0) {
    keeps_one();
    _exit(0);
  }
  tell_child(pid);
  int a = scratch("a"), b = scratch("b"), c = scratch("c");
  int top = dup2(c, 60);
  TELL(write(a, "a", 1) + write(b, "b", 1) + write(c, "c", 1));
  TELL(close_range(5, 4, 0));
  TELL(close_range(0, 9, 0x100));
  TELL(write(a, "A", 1));
  TELL(close_range((unsigned)b, (unsigned)c, 0));
  TELL(write(b, "B", 1));
  TELL(write(c, "C", 1));
  TELL(write(top, "T", 1));
  TELL(close_range(50, 70, CLOSE_RANGE_CLOEXEC));
  TELL(fcntl(top, F_GETFD));
  TELL(write(top, "U", 1));
  closefrom(a);
  TELL(write(a, "X", 1));
  TELL(write(top, "X", 1));
  int again = scratch("again");
  TELL(again == a);
  TELL(write(again, "again", 5));
  tell_file("a");
  tell_file("b");
  tell_file("c");
  tell_file("again");
}
