#include "probe.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>

enum { BYTES = 50000 };

static int mapped, written;
static char got[100];
static sigset_t all_but_one;
static const struct timespec none = {0, 0};

static void handler(int number) {
  (void)number;
  int kept = errno;
  memset(got, 0, sizeof got);
  TELL(pread(mapped, got, 50, 1000));
  TELL(write(written, "in the handler ", 15));
  errno = kept;
}

static void tell_mask(void) {
  sigset_t now;
  TELL(sigprocmask(SIG_BLOCK, NULL, &now));
  TELL(sigismember(&now, SIGUSR1) * 10 + sigismember(&now, SIGBUS));
}

// What comes while the program waits with nothing else let through, and what is there after.
#define TELL_INTERRUPTED(call) \
  do {                         \
    raise(SIGUSR1);            \
    TELL(call);                \
    tell_bytes("in the handler", got, 50); \
    TELL(pread(mapped, got, 50, 2000));    \
    tell_bytes("after", got, 50);          \
    tell_mask();               \
  } while (0)

// What the headers hide: the first takes a mask of 32 signals, the second that or a signal.
extern int pause_by_mask(int) __asm__("sigpause");
extern int __sigpause(int, int);

int main(void) {
  static char bytes[BYTES];
  sigset_t one;
  int pipes[2], mask = 0x7fffffff & ~sigmask(SIGUSR1);
  written = scratch("written");
  mapped = often_read("mapped", bytes, BYTES, 4);
  sigemptyset(&one);
  sigaddset(&one, SIGUSR1);
  sigfillset(&all_but_one);
  sigdelset(&all_but_one, SIGUSR1);
  signal(SIGUSR1, handler);
  TELL(sigprocmask(SIG_BLOCK, &one, NULL));
  TELL(pipe(pipes));
  int set = epoll_create1(0);
  struct epoll_event events[2], interest = {.events = EPOLLIN, .data.u32 = 44};
  struct pollfd poll = {pipes[0], POLLIN, 0};
  fd_set reading;
  TELL(epoll_ctl(set, EPOLL_CTL_ADD, pipes[0], &interest));
  FD_ZERO(&reading);
  FD_SET(pipes[0], &reading);
  TELL_INTERRUPTED(sigsuspend(&all_but_one));
  TELL_INTERRUPTED(ppoll(&poll, 1, NULL, &all_but_one));
  TELL_INTERRUPTED(pselect(pipes[0] + 1, &reading, NULL, NULL, NULL, &all_but_one));
  TELL_INTERRUPTED(epoll_pwait(set, events, 2, -1, &all_but_one));
  TELL_INTERRUPTED(epoll_pwait2(set, events, 2, NULL, &all_but_one));
  // Nothing comes, or there is something, with a mask and without.
  for (int round = 0; round < 2; round++) {
    for (const sigset_t *under = &one;; under = NULL) {
      FD_SET(pipes[0], &reading);
      TELL(ppoll(&poll, 1, &none, under));
      TELL(poll.revents);
      TELL(pselect(pipes[0] + 1, &reading, NULL, NULL, &none, under));
      TELL(epoll_pwait(set, events, 2, 0, under));
      TELL(epoll_pwait2(set, events, 2, &none, under));
      tell_mask();
      if (!under) break;
    }
    TELL(write(pipes[1], "x", 1));
  }
  TELL(events[0].data.u32);
  TELL(ppoll((void *)8, 1, &none, &one));
  TELL(epoll_pwait(pipes[0], events, 2, 0, &one));
  TELL(pselect(-1, NULL, NULL, NULL, &none, &one));
  TELL_INTERRUPTED(sigpause(SIGUSR1));
  TELL_INTERRUPTED(__sigpause(SIGUSR1, 1));
  TELL_INTERRUPTED(__sigpause(mask, 0));
  TELL_INTERRUPTED(pause_by_mask(mask));
  tell_file("written");
}
