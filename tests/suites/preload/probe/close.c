#include "probe.h"

// A number that is closed behind the library's back means another file afterwards.
int main(void) {
  int fd = scratch("first");
  TELL(write(fd, "first", 5));
  TELL(syscall(SYS_close, fd));
  TELL(write(fd, "lost", 4));
  FILE *stream = fopen("second", "w");
  TELL(fileno(stream) == fd);
  TELL(write(fd, "second", 6));
  TELL(fclose(stream));
  int third = scratch("third");
  TELL(third == fd);
  TELL(write(third, "third", 5));
  int pipes[2];
  TELL(syscall(SYS_close, third));
  TELL(pipe(pipes));
  TELL(pipes[0] == third || pipes[1] == third);
  char got[9] = "";
  TELL(write(pipes[1], "pipe", 4));
  TELL(read(pipes[0], got, 4));
  tell_bytes("pipe", got, 4);
  TELL(close(pipes[1]));
  TELL(close(pipes[1]));
  TELL(close(-1));
  tell_file("first");
  tell_file("second");
  tell_file("third");
}
