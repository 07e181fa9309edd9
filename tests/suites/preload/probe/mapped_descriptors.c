#include "probe.h"
#include <pthread.h>

enum { BYTES = 50000, ENOUGH = 100 };

static char got[5000], contents[2][BYTES];

static int warm(int fd) {
  int bad = 0;
  for (int n = 0; n < ENOUGH; n++) bad += pread(fd, got, 1, 0) != 1;
  TELL(bad);
  return fd;
}

static void look(int fd) {
  TELL(pread(fd, got, 20, 1000));
  tell_bytes("pread", got, 20);
}

static void make(const char *name, unsigned seed) {
  int fd = scratch(name);
  TELL(write(fd, pattern(contents[seed - 1], BYTES, seed), BYTES));
  TELL(close(fd));
}

static volatile int stop;
static int shared;

static void *reads(void *unused) {
  char bytes[50];
  long bad = 0;
  (void)unused;
  while (!stop) {
    ssize_t length = pread(shared, bytes, sizeof bytes, 2000);
    if (length == sizeof bytes) bad += memcmp(bytes, contents[0] + 2000, length) && memcmp(bytes, contents[1] + 2000, length);
    else bad += !(length == -1 && errno == EBADF);
  }
  return (void *)bad;
}

// What becomes of numbers whose file was mapped.
int main(void) {
  make("one", 1);
  make("two", 2);
  int one = warm(open("one", O_RDONLY));
  int two = warm(open("two", O_RDONLY));
  look(one);
  look(two);
  int copy = dup(one);
  TELL(close(one));
  look(one);
  look(warm(copy));
  TELL(dup2(two, copy) == copy);
  look(copy);
  TELL(close(copy));
  TELL(open("two", O_RDONLY) == one);
  look(one);
  TELL(fcntl(two, F_SETFL, O_NONBLOCK));
  look(two);
  TELL(close_range(one, one + 9, 0));
  look(two);
  TELL(open("one", O_RDONLY) == one);
  warm(one);
  TELL(syscall(SYS_close, one));
  int pipes[2];
  TELL(pipe(pipes));
  TELL(pread(one, got, 20, 1000));
  TELL(close(pipes[0]) | close(pipes[1]));
  one = warm(open("one", O_RDONLY));
  TELL(dup3(open("two", O_RDONLY), one, O_CLOEXEC) == one);
  look(one);
  TELL(close_range(one, one + 9, 0));
  one = warm(open("one", O_RDONLY));
  FILE *stream = fdopen(one, "r");
  TELL(fclose(stream));
  look(one);
  one = warm(open("one", O_RDONLY));
  pid_t pid = fork();
  if (pid == 0) {
    look(one);
    TELL(close(one));
    TELL(open("two", O_RDONLY) == one);
    look(warm(one));
    _exit(7);
  }
  tell_child(pid);
  look(one);
  pid = vfork();
  if (pid == 0) {
    close(one);
    _exit(open("two", O_RDONLY) == one ? 8 : 9);
  }
  tell_child(pid);
  look(one);
  shared = warm(open("one", O_RDONLY));
  pthread_t threads[3];
  for (int n = 0; n < 3; n++) pthread_create(&threads[n], NULL, reads, NULL);
  for (int n = 0; n < 200; n++) {
    close(shared);
    if (open(n % 2 ? "one" : "two", O_RDONLY) != shared) _exit(98);
    for (int m = 0; m < ENOUGH; m++) (void)!pread(shared, got, 1, 0);
  }
  stop = 1;
  for (int n = 0; n < 3; n++) {
    void *bad;
    pthread_join(threads[n], &bad);
    TELL((long)bad);
  }
}
