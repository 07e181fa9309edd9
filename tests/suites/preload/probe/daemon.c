#include "probe.h"
#include <pty.h>

// A program whose parent ends behind it, and one that gets a terminal of its own.
int main(void) {
  int fd = scratch("file"), pipes[2], terminal;
  char byte;
  TELL(write(fd, "before ", 7));
  TELL(pipe(pipes));
  pid_t pid = fork();
  if (pid == 0) {
    if (daemon(1, 1)) _exit(1);
    write(fd, "daemon ", 7);
    int own = scratch("own");
    write(own, "own", 3);
    write(pipes[1], "x", 1);
    _exit(0);
  }
  TELL(read(pipes[0], &byte, 1));
  tell_child(pid);
  TELL(write(fd, "between ", 8));
  pid = forkpty(&terminal, NULL, NULL, NULL);
  if (pid == 0) _exit(write(fd, "terminal ", 9) == 9 ? 5 : 6);
  tell_child(pid);
  TELL(write(fd, "end", 3));
  tell_file("file");
  tell_file("own");
}
