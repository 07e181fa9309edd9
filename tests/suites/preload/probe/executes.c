#include "probe.h"

// By every name under which a program goes on as another, and what it wrote a moment before is there.
extern char **environ;

int main(int count, char **words) {
  if (count > 1) {
    int fd = atoi(words[1]);
    TELL(lseek(fd, 0, SEEK_CUR));
    TELL(write(fd, "new ", 4));
    tell_file("file");
    return 0;
  }
  char number[16], itself[4096], *next[] = {words[0], number, NULL};
  itself[readlink("/proc/self/exe", itself, sizeof itself - 1)] = 0;
  for (int way = 0; way < 9; way++) {
    int fd = scratch("file");
    snprintf(number, sizeof number, "%d", fd);
    TELL(write(fd, "old ", 4));
    pid_t pid = way == 8 ? vfork() : fork();
    if (pid == 0) {
      if (way != 8) TELL(write(fd, "child ", 6));
      switch (way) {
      case 0: execv(itself, next); break;
      case 1: execve(itself, next, environ); break;
      case 2: execvp(itself, next); break;
      case 3: execvpe(itself, next, environ); break;
      case 4: execle(itself, words[0], number, NULL, environ); break;
      case 5: execlp(itself, words[0], number, NULL); break;
      case 6: fexecve(open(itself, O_RDONLY), next, environ); break;
      case 7: execveat(AT_FDCWD, itself, next, environ, 0); break;
      case 8: execve(itself, next, environ); break;
      }
      _exit(1);
    }
    tell_child(pid);
    TELL(write(fd, "end", 3));
    tell_file("file");
    close(fd);
  }
}
