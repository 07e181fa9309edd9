#define _GNU_SOURCE
#include "probe.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

// A program that may make no system call any more but those that it makes itself.
static struct sock_filter filter[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
#define ENDS(call) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)
    ENDS(SYS_socket), ENDS(SYS_connect), ENDS(SYS_sendmsg), ENDS(SYS_recvmsg), ENDS(SYS_poll), ENDS(SYS_ppoll), ENDS(SYS_ioctl),
    ENDS(SYS_statx), ENDS(SYS_lseek), ENDS(SYS_getpid), ENDS(SYS_gettid),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
};

enum { BY_PRCTL, BY_SYSCALL, BY_SECCOMP, WAYS };

static void filtered(int how) {
  struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
  static char block[8192], got[100];
  int fd = scratch("filtered"), reader = open("filtered", O_RDONLY);
  for (int n = 0; n < 8; n++) write(fd, pattern(block, sizeof block, n), sizeof block);
  TELL(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
  if (how == BY_PRCTL) TELL(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
  if (how == BY_SYSCALL) TELL(syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
  if (how == BY_SECCOMP) TELL(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program));
  TELL(write(fd, block, 100));
  TELL(posix_fadvise(reader, 0, 0, POSIX_FADV_RANDOM));
  for (int n = 0; n < 70; n++) pread(reader, got, sizeof got, 0);
  char *map = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0);
  tell_bytes("map", map, 8192);
  TELL(munmap(map, 8192));
  int other = open("filtered.other", O_WRONLY | O_CREAT | O_TRUNC, 0644);
  for (int n = 0; n < 8; n++) TELL(write(other, block, sizeof block));
  TELL(close(other));
  FILE *stream = fopen("filtered.stream", "w");
  for (int n = 0; n < 100; n++) TELL(fputs("a line\n", stream) >= 0);
  TELL(fclose(stream));
  tell_size("filtered.stream");
  TELL(close(fd));
  _exit(0);
}

int main(void) {
  for (int how = 0; how < WAYS; how++) {
    pid_t pid = fork();
    if (pid == 0) filtered(how);
    tell_child(pid);
    tell_file("filtered");
    tell_file("filtered.other");
  }
}
