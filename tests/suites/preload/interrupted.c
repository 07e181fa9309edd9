// Handlers of signals that interrupt writes to a file that has a window. Each story prints one line: whether all files had one and all
// signals came, and how much was wrong.
//   interrupted jumped ROUNDS  the handler leaves the write by a jump: it was done, position and bytes, or it was not
//   interrupted nested ROUNDS  the handler writes more to the same file than its window holds
//   interrupted forked ROUNDS  the handler forks, and the child goes on with the write late, when its parent has written much else
//   interrupted split ROUNDS   the same, by the system call and of a write at the file position
//   interrupted twins ROUNDS   the same, and both go on at once
//   interrupted shared ROUNDS  no handler: threads write at one file position, which nobody waits for
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct forebay_window {
  uint32_t size, command;
  uint64_t bytes, token;
  uint32_t state, version;
};
#define FOREBAY_WINDOW _IOWR(0xFB, 1, struct forebay_window)
enum { HAS = 2, LINE = 1 << 20, WINDOW = 16 };

static char line[LINE], other[LINE], got[LINE];
static int fd, caught;
static volatile int writes, signals, pipes[2];
static volatile pid_t child;
static sigjmp_buf out;

static void fill(char *bytes, int n) { memset(bytes, 1 + n % 250, LINE); }

// The file anew, with a window.
static void begin(void) {
  struct forebay_window ask = {.size = sizeof ask, .version = 1};
  if (fd > 0 && (unlink("file") || close(fd))) exit(97);
  fd = open("file", O_RDWR | O_CREAT | O_EXCL, 0644);
  for (int n = 0; n < 4; n++)
    if (pwrite(fd, "w", 1, 0) != 1) exit(95);
  caught += ioctl(fd, FOREBAY_WINDOW, &ask) == 0 && ask.state & HAS;
}

static void soon(int round) {
  struct itimerval when = {.it_value = {.tv_usec = 1500 + 37 * (round % 40)}};
  setitimer(ITIMER_REAL, &when, NULL);
}

// Lines from the nth on that are not what was written.
static int wrong_lines(int n, int end) {
  int wrong = 0;
  for (; n < end; n++) {
    fill(line, n);
    wrong += pread(fd, got, LINE, (off_t)n * LINE) != LINE || memcmp(line, got, LINE);
  }
  return wrong;
}

static void jump(int signal) {
  (void)signal;
  signals++;
  siglongjmp(out, 1);
}

static int is_zeroes(const char *bytes) { return !bytes[0] && !memcmp(bytes, bytes + 1, LINE - 1); }

static int jumped(int rounds) {
  volatile int wrong = 0, empty = 0;
  for (volatile int round = 0; round < rounds; round++) {
    begin();
    if (!sigsetjmp(out, 1)) {
      soon(round);
      for (int n = 0;; n++) {
        fill(line, n);
        if (write(fd, line, LINE) != LINE) exit(96);
      }
    }
    off_t at = lseek(fd, 0, SEEK_CUR), end;
    int n = at / LINE, left = n;
    wrong += at % LINE != 0;
    // What comes after does not wait for what was left.
    for (end = n + 2 * WINDOW; n < end; n++) {
      fill(line, n);
      if (write(fd, line, LINE) != LINE) exit(96);
    }
    wrong += wrong_lines(left, n) + wrong_lines(0, left - 1);
    // In the last microsecond it has its place and is not there.
    if (left && wrong_lines(left - 1, left)) {
      wrong += !is_zeroes(got);
      empty++;
    }
  }
  wrong += empty > 1 + rounds / 10;
  printf("%d %d\n", caught == rounds && signals == rounds, wrong);
  return 0;
}

enum { BEHIND = 200 };

static void write_more(int signal) {
  (void)signal;
  signals++;
  for (int n = BEHIND; n < BEHIND + 2 * WINDOW; n++) {
    fill(other, n);
    if (pwrite(fd, other, LINE, (off_t)n * LINE) != LINE) _exit(96);
  }
}

static int nested(int rounds) {
  int wrong = 0;
  signal(SIGALRM, write_more);
  for (int round = 0; round < rounds; round++) {
    int n = 0, before = signals;
    begin();
    soon(round);
    for (; signals == before && n < BEHIND; n++) {
      fill(line, n);
      if (write(fd, line, LINE) != LINE) return 96;
    }
    wrong += lseek(fd, 0, SEEK_CUR) != (off_t)n * LINE || wrong_lines(0, n) || wrong_lines(BEHIND, BEHIND + 2 * WINDOW);
  }
  printf("%d %d\n", caught == rounds && signals == rounds, wrong);
  return 0;
}

static int at_once;

static void split(int by_call) {
  char byte;
  signals++;
  child = by_call ? syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
  if (child < 0) _exit(94);
  if (child || at_once) return;
  // It goes on late, and not at all if its parent has ended.
  close(pipes[1]);
  if (read(pipes[0], &byte, 1) != 1) _exit(93);
}

static void by_fork(int signal) {
  (void)signal;
  split(0);
}

static void by_call(int signal) {
  (void)signal;
  split(1);
}

static int forked(int rounds, int at_position) {
  int wrong = 0, status;
  if (pipe((int *)pipes)) return 92;
  signal(SIGALRM, at_position ? by_call : by_fork);
  for (int round = 0; round < rounds; round++) {
    int n = 0, last = 1, before = signals;
    begin();
    child = -1;
    soon(round);
    for (; (signals == before && n < 10 * BEHIND) || n < last; n++) {
      if (signals == before) last = n + 1 + 3 * WINDOW;
      fill(line, n);
      ssize_t done = at_position ? write(fd, line, LINE) : pwrite(fd, line, LINE, (off_t)n * LINE);
      if (!child) _exit(done != LINE);
      if (done != LINE) return 96;
      // In the midst of what follows.
      if (n == last - WINDOW && !at_once && write(pipes[1], "x", 1) != 1) return 91;
    }
    if (waitpid(child, &status, 0) != child) return 90;
    wrong += status != 0;
    if (at_position) {
      // Both went on with the same write: its bytes are there once or twice, and nothing else is missing or moved.
      off_t end = lseek(fd, 0, SEEK_END);
      int lines = end / LINE, twice = 0, expected = 0;
      wrong += end % LINE != 0 || lines < n || lines > n + 1;
      for (int at = 0; at < lines; at++) {
        fill(line, expected);
        int same = pread(fd, got, LINE, (off_t)at * LINE) == LINE && !memcmp(line, got, LINE);
        if (same) expected++;
        else twice++;
      }
      wrong += expected != n || twice != lines - n;
    } else {
      wrong += wrong_lines(0, n);
    }
  }
  printf("%d %d\n", caught == rounds && signals == rounds, wrong);
  return 0;
}

enum { SHORT = 4096, EACH = 4000 };

static int own_places;

static void *sharing_thread(void *number) {
  char bytes[SHORT];
  memset(bytes, 1 + (int)(long)number, SHORT);
  for (int n = 0; n < EACH; n++) {
    off_t at = ((off_t)n * 3 + (long)number) * SHORT;
    if ((own_places ? pwrite(fd, bytes, SHORT, at) : write(fd, bytes, SHORT)) != SHORT) exit(96);
  }
  return NULL;
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec + now.tv_nsec / 1e9;
}

static int shared(int rounds) {
  struct forebay_window ask = {.size = sizeof ask, .version = 1};
  static char bytes[SHORT];
  int wrong = 0, kept = 0;
  double took[2] = {0};
  for (int round = 0; round < 2 * rounds; round++) {
    double began = seconds();
    pthread_t threads[3];
    int of[3] = {0};
    if (fd > 0 && (unlink("file") || close(fd))) return 97;
    fd = open("file", O_RDWR | O_CREAT | O_EXCL, 0644);
    own_places = round % 2;
    for (long n = 0; n < 3; n++) pthread_create(&threads[n], NULL, sharing_thread, (void *)n);
    for (int n = 0; n < 3; n++) pthread_join(threads[n], NULL);
    took[own_places] += seconds() - began;
    kept += ioctl(fd, FOREBAY_WINDOW, &ask) == 0 && ask.state & HAS;
    ask.command = 0;
    for (int n = 0; n < 3 * EACH; n++) {
      if (pread(fd, bytes, SHORT, (off_t)n * SHORT) != SHORT || memcmp(bytes, bytes + 1, SHORT - 1)) wrong++;
      else if (bytes[0] >= 1 && bytes[0] <= 3) of[bytes[0] - 1]++;
    }
    wrong += of[0] != EACH || of[1] != EACH || of[2] != EACH || lseek(fd, 0, SEEK_END) != (off_t)3 * EACH * SHORT;
  }
  printf("%d %d\n", kept >= rounds && took[0] < 2.5 * took[1] + 0.05 * rounds, wrong);
  return 0;
}

int main(int argc, char **argv) {
  struct sigaction leave = {.sa_handler = jump};
  const char *story = argc > 2 ? argv[1] : "";
  int rounds = argc > 2 ? atoi(argv[2]) : 0;
  if (!strcmp(story, "jumped")) return sigaction(SIGALRM, &leave, NULL) || jumped(rounds);
  if (!strcmp(story, "nested")) return nested(rounds);
  if (!strcmp(story, "forked")) return forked(rounds, 0);
  if (!strcmp(story, "split")) return forked(rounds, 1);
  if (!strcmp(story, "shared")) return shared(rounds);
  at_once = 1;
  if (!strcmp(story, "twins")) return forked(rounds, 1);
  return 99;
}
