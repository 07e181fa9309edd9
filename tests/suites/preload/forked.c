// A process with a window forks children that have windows of their own, among threads that are asked for windows and give them
// back meanwhile, and one that is killed in the midst of its work. Prints what is wrong, at last how many children had none.
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct forebay_window {
  uint32_t size, command;
  uint64_t bytes, token;
  uint32_t state, version;
};
#define FOREBAY_WINDOW _IOWR(0xFB, 1, struct forebay_window)
enum { HAS = 2, BLOCK = 8192, CHILDREN = 60, WRITES = 100 };

static char block[BLOCK], got[BLOCK];
static atomic_int over;

static int has_window(int fd) {
  struct forebay_window ask = {.size = sizeof ask, .version = 1};
  return ioctl(fd, FOREBAY_WINDOW, &ask) == 0 && ask.state & HAS;
}

static int made(const char *name) { return open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644); }

static void fill(int fd, int from, int count) {
  for (int n = from; n < from + count; n++) {
    memset(block, n, BLOCK);
    if (write(fd, block, BLOCK) != BLOCK) printf("write %d failed\n", n);
  }
}

static void check(const char *name, int count) {
  int fd = open(name, O_RDONLY);
  for (int n = 0; n < count; n++) {
    memset(block, n, BLOCK);
    if (read(fd, got, BLOCK) != BLOCK || memcmp(block, got, BLOCK)) printf("%s: block %d is another\n", name, n);
  }
  if (read(fd, got, BLOCK)) printf("%s: more than was written\n", name);
  close(fd);
}

static void *busy(void *name) {
  static char bytes[BLOCK];
  while (!over) {
    int fd = made(name);
    for (int n = 0; n < 5; n++) (void)!write(fd, bytes, BLOCK);
    close(fd);
  }
  return NULL;
}

// What generations before had open takes nothing from a late one. Whether that has a window; ends the process.
static void generations(int left) {
  int fds[30], status;
  for (;; left--) {
    for (int n = 0; n < 30; n++) {
      char name[32];
      snprintf(name, sizeof name, "inherited %d", n);
      fds[n] = made(name);
    }
    if (left == 0) break;
    pid_t pid = fork();
    if (pid > 0) {
      waitpid(pid, &status, 0);
      _exit(status != 0);
    }
    for (int n = 0; n < 30; n++) close(fds[n]);
  }
  int fd = made("late");
  fill(fd, 0, 10);
  _exit(has_window(fd) ? 0 : 1);
}

static void wait_for(pid_t pid, int want, int *missed) {
  int status;
  waitpid(pid, &status, 0);
  if (status != want) ++*missed;
}

int main(void) {
  pthread_t threads[2];
  int missed = 0, fd = made("parent");
  fill(fd, 0, 20);
  for (int n = 0; n < 2; n++) pthread_create(threads + n, NULL, busy, n ? "one" : "two");
  for (int n = 0; n < CHILDREN; n++) {
    pid_t pid = fork();
    if (pid == 0) {
      alarm(10);
      char name[32];
      snprintf(name, sizeof name, "child %d", n);
      int own = made(name);
      fill(own, 0, WRITES);
      if (!has_window(own)) _exit(1);
      if (n % 2) _exit(0);
      raise(SIGKILL);
    }
    wait_for(pid, n % 2 ? 0 : SIGKILL, &missed);
  }
  pid_t pid = fork();
  if (pid == 0) generations(40);
  wait_for(pid, 0, &missed);
  over = 1;
  for (int n = 0; n < 2; n++) pthread_join(threads[n], NULL);
  if (!has_window(fd)) printf("the parent's window has ended\n");
  fill(fd, 20, 20);
  check("parent", 40);
  for (int n = 0; n < CHILDREN; n++) {
    char name[32];
    snprintf(name, sizeof name, "child %d", n);
    check(name, WRITES);
  }
  printf("%d\n", missed);
  return 0;
}
