// Writes by a number that comes to mean another file meanwhile. Each story prints one line.
//   numbers moved ROUNDS     what a thread writes by a number that comes to mean another file is in the one or the other, whole
//   numbers rotated ROUNDS   a handler of signals replaces the file that it interrupted a write to, as logs are rotated
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

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

int main(int count, char **words) {
  if (count > 2 && !strcmp(words[1], "moved")) return moved(atoi(words[2]));
  if (count > 2 && !strcmp(words[1], "rotated")) return rotated(atoi(words[2]));
  return 64;
}
