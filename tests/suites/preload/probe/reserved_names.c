#include "probe.h"
#include <sched.h>

// The names that the C library keeps for itself and programs call all the same.
extern int __open(const char *, int, ...), __open64(const char *, int, ...), __close(int), __dup2(int, int), __fcntl(int, int, ...);
extern ssize_t __read(int, void *, size_t), __write(int, const void *, size_t);
extern ssize_t __pread64(int, void *, size_t, off_t), __pwrite64(int, const void *, size_t, off_t);
extern off_t __lseek(int, off_t, int);
extern pid_t __fork(void);
extern pid_t __vfork(void) __attribute__((returns_twice));
extern int __clone(int (*)(void *), void *, int, void *, ...);

enum { BYTES = 50000, ENOUGH = 100 };

static int child(void *fd) {
  TELL(__write(*(int *)fd, "clone ", 6));
  return 5;
}

int main(void) {
  static char bytes[BYTES], stack[1 << 18] __attribute__((aligned(64)));
  char got[100] = "";
  int bad = 0;
  int fd = TELL_OPEN(__open("file", O_RDWR | O_CREAT | O_TRUNC, 0640));
  for (int n = 0; n < 20; n++) bad += __write(fd, "written ", 8) != 8;
  TELL(bad);
  TELL(__pwrite64(fd, "at", 2, 3));
  TELL(__lseek(fd, 4, SEEK_SET));
  TELL(__read(fd, got, 50));
  tell_bytes("read", got, 50);
  TELL(__fcntl(fd, F_SETFL, O_APPEND));
  TELL(__write(fd, "appended ", 9));
  TELL(__fcntl(fd, F_GETFL) & O_APPEND);
  int copy = TELL_OPEN(__fcntl(fd, F_DUPFD, 50));
  TELL(__write(copy, "copy ", 5));
  pid_t pid = __fork();
  if (pid == 0) {
    TELL(__write(fd, "fork ", 5));
    _exit(3);
  }
  tell_child(pid);
  pid = __vfork();
  if (pid == 0) {
    __close(fd);
    _exit(4);
  }
  tell_child(pid);
  TELL(__write(fd, "vfork ", 6));
  pid = __clone(child, stack + sizeof stack, SIGCHLD, &fd, NULL, NULL, NULL);
  tell_child(pid);
  tell_file("file");
  int other = TELL_OPEN(__open64("other", O_RDWR | O_CREAT | O_TRUNC, 0640));
  for (int n = 0; n < 20; n++) bad += __pwrite64(other, pattern(bytes, BYTES, n), BYTES, n) != BYTES;
  TELL(bad);
  TELL(__dup2(other, copy) == copy);
  TELL(__write(copy, "copy ", 5));
  TELL(__close(other));
  TELL(__write(other, "x", 1));
  TELL(__close(copy));
  tell_file("other");
  // Read often enough to be mapped, where files are.
  other = TELL_OPEN(__open64("other", O_RDONLY));
  for (int n = 0; n < ENOUGH; n++) bad += __pread64(other, got, 1, n) != 1;
  TELL(bad);
  TELL(__pread64(other, got, 100, 3000));
  tell_bytes("pread", got, 100);
  TELL(__dup2(fd, other) == other);
  TELL(__pread64(other, got, 100, 0));
  tell_bytes("pread", got, 100);
  TELL(__pread64(other, got, 100, -1));
  TELL(__close(other));
  TELL(__close(other));
}
