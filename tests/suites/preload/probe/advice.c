#define _GNU_SOURCE
#include "probe.h"

#include <sched.h>

enum { CONNECTIONS_FROM = 700 };

// A program that does nothing but read, no agent's file at first, and shares its descriptors with nobody any more: whatever it says, no descriptor is added.
static void alone(void) {
  mknod("alone", S_IFREG | 0644, 0);
  int fd = open("alone", O_RDONLY), memory = memfd_create("memory", 0);
  TELL(posix_fadvise(memory, 0, 0, POSIX_FADV_RANDOM));
  TELL(fcntl(CONNECTIONS_FROM, F_GETFD));
  TELL(unshare(CLONE_FILES));
  TELL(posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM));
  TELL(fcntl(CONNECTIONS_FROM, F_GETFD));
}

int main(void) {
  pid_t pid = fork();
  if (pid == 0) {
    alone();
    _exit(0);
  }
  tell_child(pid);
  char block[5000], back[5000] = "";
  int fd = scratch("file"), pipes[2];
  for (int n = 0; n < 8; n++) TELL(write(fd, pattern(block, sizeof block, n), sizeof block));
  for (int advice = -1; advice < 8; advice++) TELL(posix_fadvise(fd, 0, 0, advice));
  TELL(posix_fadvise64(fd, 4096, 8192, POSIX_FADV_WILLNEED));
  TELL(posix_fadvise(fd, -1, 5, POSIX_FADV_WILLNEED));
  TELL(posix_fadvise(fd, 5, -1, POSIX_FADV_RANDOM));
  TELL(posix_fadvise(fd, 1LL << 62, 1LL << 62, POSIX_FADV_WILLNEED));
  TELL(write(fd, "after", 5));
  TELL(pread(fd, back, sizeof back, 39000));
  tell_bytes("read after advice", back, sizeof back);
  int reader = open("file", O_RDONLY);
  TELL(posix_fadvise(reader, 0, 0, POSIX_FADV_SEQUENTIAL));
  TELL(posix_fadvise(reader, 0, 0, POSIX_FADV_WILLNEED));
  TELL(read(reader, back, sizeof back));
  tell_bytes("read", back, sizeof back);
  TELL(pipe(pipes));
  TELL(posix_fadvise(pipes[0], 0, 0, POSIX_FADV_RANDOM));
  TELL(posix_fadvise(pipes[0], 0, 0, POSIX_FADV_WILLNEED));
  TELL(posix_fadvise(777, 0, 0, POSIX_FADV_WILLNEED));
  tell_file("file");
}
