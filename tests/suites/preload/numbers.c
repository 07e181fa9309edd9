// What a number means, and to whom, while files are mapped for small reads (mapped.c). Each story prints one line.
//   numbers replaced ROUNDS  a thread that sees what a number means by now reads that, and not what it meant
//   numbers moved ROUNDS     what a thread writes by a number that comes to mean another file is in the one or the other, whole
//   numbers rotated ROUNDS   a handler of signals replaces the file that it interrupted a write to, as logs are rotated
//   numbers apart HOW        a child has memory or descriptors of its own, and shares the other: by clone, its system call, or clone3
//   numbers crowded          a forked child of a program with as many mappings as there may be
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mapped.h"

// Another file, of zeroes.
static int other_file(void) {
  int fd = open("file.other", O_RDWR | O_CREAT | O_TRUNC, 0644);
  if (fd < 0 || ftruncate(fd, PAGES * PAGE)) exit(97);
  return fd;
}

struct replaced {
  volatile int fd, seen, wrong, over;
  ino_t other;
};

static void *looking_thread(void *argument) {
  struct replaced *shared = argument;
  static char got[64];
  while (!shared->over) {
    struct stat now, then;
    int fd = shared->fd;
    if (fd < 0 || fstat(fd, &now)) continue;
    ssize_t read = pread(fd, got, sizeof got, PAGE + 1);
    // The same number comes again for the file, too.
    if (now.st_ino == shared->other && !fstat(fd, &then) && then.st_ino == shared->other)
      shared->wrong += read != sizeof got || right(got, PAGE + 1, sizeof got);
    __atomic_add_fetch(&shared->seen, 1, __ATOMIC_SEQ_CST);
  }
  return NULL;
}

static int replaced(int rounds) {
  struct replaced shared = {.fd = -1};
  struct stat status;
  pthread_t thread;
  make();
  int other = other_file(), mapped = 0;
  if (fstat(other, &status)) return 95;
  shared.other = status.st_ino;
  pthread_create(&thread, NULL, looking_thread, &shared);
  for (int round = 0; round < rounds; round++) {
    int fd = warm(WARM);
    mapped += mappings() > 0;
    shared.fd = fd;
    for (int seen = shared.seen; shared.seen - seen < 2;) sched_yield();
    if (round % 2 ? dup2(other, fd) != fd : dup3(other, fd, O_CLOEXEC) != fd) return 96;
    for (int seen = shared.seen; shared.seen - seen < 2;) sched_yield();
    shared.fd = -1;
    close(fd);
  }
  shared.over = 1;
  pthread_join(thread, NULL);
  printf("%d %d %d\n", mapped == rounds, shared.wrong, mappings());
  return 0;
}

enum { RECORD = 64, RECORDS = 400 };

struct moved {
  int fd;
  volatile int written;
};

static void *writing_thread(void *argument) {
  struct moved *shared = argument;
  char record[RECORD];
  for (int n = 0; n < RECORDS; n++) {
    memset(record, 1 + n % 250, RECORD);
    if (write(shared->fd, record, RECORD) != RECORD) exit(96);
    shared->written = n + 1;
  }
  return NULL;
}

// Records of a file, from the nth on: how many are not the next ones.
static int not_next(const char *name, int *n) {
  char record[RECORD];
  int fd = open(name, O_RDONLY), bad = 0;
  for (ssize_t got; (got = read(fd, record, RECORD)) > 0; ++*n)
    for (int at = 0; at < RECORD; at++) bad += at >= got || record[at] != (char)(1 + *n % 250);
  close(fd);
  return bad;
}

static int moved(int rounds) {
  int wrong = 0, cut = 0;
  for (int round = 0; round < rounds; round++) {
    struct moved shared = {.fd = open("first", O_WRONLY | O_CREAT | O_TRUNC, 0644)};
    int other = open("second", O_WRONLY | O_CREAT | O_TRUNC, 0644), n = 0;
    pthread_t thread;
    // So that it has its window.
    for (int warm = 0; warm < 4; warm++)
      if (pwrite(shared.fd, "w", 1, 0) != 1) return 95;
    pthread_create(&thread, NULL, writing_thread, &shared);
    while (shared.written < 20 + round % 200);
    if (round % 2 ? dup2(other, shared.fd) != shared.fd : dup3(other, shared.fd, O_CLOEXEC) != shared.fd) return 94;
    pthread_join(thread, NULL);
    close(shared.fd);
    close(other);
    wrong += not_next("first", &n) > 0;
    cut += n < RECORDS;
    wrong += not_next("second", &n) > 0 || n != RECORDS;
  }
  printf("%d %d\n", wrong, cut * 2 > rounds);
  return 0;
}

enum { LINE = 1 << 20 };

static volatile int log_fd, logs;

static void rotate(int signal) {
  char name[32];
  (void)signal;
  snprintf(name, sizeof name, "log.%d", logs + 1);
  if (logs % 2) {
    close(log_fd);
    if (open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644) != log_fd) _exit(93);
  } else {
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || dup2(fd, log_fd) != log_fd || close(fd)) _exit(92);
  }
  logs++;
}

// Lines of a log, whose bytes are all its number: 1, if they are not whole, or not the next ones. One that the signal came too early for
// has the byte alone that its window was had by.
static int other_lines(const char *name, int *n) {
  static char line[LINE];
  int fd = open(name, O_RDONLY), bad = 0;
  if (lseek(fd, 0, SEEK_END) > 1) lseek(fd, 0, SEEK_SET);
  for (ssize_t got; (got = read(fd, line, LINE)) > 0; ++*n)
    bad |= got != LINE || line[0] != (char)(1 + *n % 250) || memcmp(line, line + 1, LINE - 1);
  close(fd);
  return bad;
}

static int rotated(int rounds) {
  static char line[LINE];
  struct sigaction action = {.sa_handler = rotate, .sa_flags = SA_RESTART};
  int wrong = 0, n = 0, written = 0;
  char name[32], first = 0;
  log_fd = open("log.0", O_WRONLY | O_CREAT | O_TRUNC, 0644);
  sigaction(SIGALRM, &action, NULL);
  for (int round = 0; round < rounds; round++) {
    struct itimerval soon = {.it_value = {.tv_usec = 1500 + 37 * (round % 40)}};
    // So that it has its window, and a write is under way when the signal comes.
    if (!lseek(log_fd, 0, SEEK_CUR)) first = 1 + written % 250;
    for (int warm = 0; warm < 8; warm++)
      if (pwrite(log_fd, &first, 1, 0) != 1) return 95;
    setitimer(ITIMER_REAL, &soon, NULL);
    for (int before = logs; logs == before; written++) {
      memset(line, 1 + written % 250, LINE);
      if (write(log_fd, line, LINE) != LINE) return 96;
      if (lseek(log_fd, 0, SEEK_CUR) == LINE) first = line[0];
    }
  }
  close(log_fd);
  for (int log = 0; log <= logs; log++) {
    snprintf(name, sizeof name, "log.%d", log);
    wrong += other_lines(name, &n);
    unlink(name);
  }
  printf("%d %d\n", wrong, written - n);
  return 0;
}

struct apart {
  volatile int fd, turn, wrong;
};

// Shares the memory and has a table of its own: what the number means there is not what it means here.
static int with_the_memory(void *argument) {
  struct apart *shared = argument;
  while (shared->turn != 1) sched_yield();
  shared->wrong = !check(shared->fd);
  shared->turn = 2;
  syscall(SYS_exit, 0);
  return 0;
}

// Shares the table.
static int with_the_descriptors(void *argument) {
  struct apart *shared = argument;
  _exit(dup2(open("file.other", O_RDONLY), shared->fd) != shared->fd);
}

static int apart(const char *how) {
  static char stack[1 << 16] __attribute__((aligned(16))), got[64];
  static struct apart shared;
  struct { unsigned long flags, unused[3], signal, more[3]; } arguments = {.flags = CLONE_FILES, .signal = SIGCHLD};
  int status = 0, mapped;
  pid_t pid = -1;
  make();
  close(other_file());
  shared.fd = warm(WARM);
  mapped = mappings();
  if (!strcmp(how, "memory")) {
    pid = clone(with_the_memory, stack + sizeof stack, CLONE_VM | SIGCHLD, &shared);
    close(shared.fd);
    int fd = open("file.other", O_RDONLY);
    for (int n = 0; n < WARM; n++) (void)!pread(fd, got, sizeof got, 0);
    mapped += fd != shared.fd;
    shared.turn = 1;
    while (shared.turn != 2) sched_yield();
    waitpid(pid, &status, 0);
    printf("%d %d %d %d\n", mapped, status, shared.wrong, mappings());
    return 0;
  }
  if (!strcmp(how, "descriptors")) pid = clone(with_the_descriptors, stack + sizeof stack, CLONE_FILES | SIGCHLD, &shared);
  if (!strcmp(how, "call")) pid = syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
  if (!strcmp(how, "clone3")) pid = syscall(SYS_clone3, &arguments, sizeof arguments);
  if (pid == 0) with_the_descriptors(&shared);
  waitpid(pid, &status, 0);
  ssize_t read = pread(shared.fd, got, sizeof got, PAGE + 1);
  printf("%d %d %d %d\n", mapped, status, read != sizeof got || right(got, PAGE + 1, sizeof got), mappings());
  return 0;
}

// All places for mappings are taken when the child is made, which has as many, and one of its own means nothing to what it inherited.
static int crowded(void) {
  enum { PLACES = 64 };
  int fds[PLACES], status;
  static char got[64];
  make();
  close(other_file());
  for (int n = 0; n < PLACES; n++) fds[n] = warm(WARM);
  int taken = mappings();
  pid_t pid = fork();
  if (pid == 0) {
    int wrong = mappings() != 0;
    for (int n = 0; n < PLACES; n++) wrong |= !check(fds[n]);
    int other = open("file.other", O_RDONLY);
    for (int n = 0; n < WARM; n++) wrong |= pread(other, got, sizeof got, PAGE) != sizeof got || got[1];
    for (int n = 0; n < PLACES; n++) wrong |= !check(fds[n]) << 1;
    _exit(wrong | mappings() << 2);
  }
  waitpid(pid, &status, 0);
  for (int n = 0; n < PLACES; n++) close(fds[n]);
  printf("%d %d\n", taken, WIFEXITED(status) ? WEXITSTATUS(status) : 999);
  return 0;
}

int main(int count, char **words) {
  if (count > 1 && !strcmp(words[1], "crowded")) return crowded();
  if (count > 2 && !strcmp(words[1], "replaced")) return replaced(atoi(words[2]));
  if (count > 2 && !strcmp(words[1], "moved")) return moved(atoi(words[2]));
  if (count > 2 && !strcmp(words[1], "rotated")) return rotated(atoi(words[2]));
  if (count > 2 && !strcmp(words[1], "apart")) return apart(words[2]);
  return 64;
}
