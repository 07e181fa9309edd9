#include "probe.h"
#include <sys/time.h>

static int file;
static volatile int rounds;

static void handler(int number) {
  (void)number;
  int kept = errno;
  if (pwrite(file, "from the handler", 16, 4096) == 16) rounds++;
  errno = kept;
}

// Calls from a handler that interrupts calls; and a read that a signal ends.
int main(void) {
  char block[4096];
  file = scratch("file");
  struct sigaction action = {.sa_handler = handler};
  sigaction(SIGALRM, &action, NULL);
  struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
  setitimer(ITIMER_REAL, &often, NULL);
  pattern(block, sizeof block, 9);
  int bad = 0;
  while (rounds < 50) {
    if (pwrite(file, block, sizeof block, 0) != sizeof block) bad++;
    if (lseek(file, 0, SEEK_SET) != 0 || write(file, block, 100) != 100) bad++;
  }
  setitimer(ITIMER_REAL, &never, NULL);
  TELL(bad);
  tell_file("file");
  int pipes[2];
  TELL(pipe(pipes));
  struct itimerval once = {{0, 0}, {0, 20000}};
  setitimer(ITIMER_REAL, &once, NULL);
  TELL(read(pipes[0], block, 1));
}
