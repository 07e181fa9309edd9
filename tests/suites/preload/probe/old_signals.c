#include "probe.h"
#include <sys/prctl.h>

// Not in the headers any more, or under another name there.
extern sighandler_t bsd_signal(int, sighandler_t);
extern sighandler_t sysv_signal(int, sighandler_t);
extern sighandler_t __sysv_signal(int, sighandler_t);
extern int __sigaction(int, const struct sigaction *, struct sigaction *);

enum { BYTES = 50000, ENOUGH = 100 };

static char got[100];
static volatile int caught;
static void handler(int number) { caught += number; }

// A descriptor that has read often enough to be mapped, where files are.
static int reader(void) {
  int fd = open("file", O_RDONLY), bad = 0;
  for (int n = 0; n < ENOUGH; n++) bad += pread(fd, got, 1, 0) != 1;
  TELL(bad);
  return fd;
}

static void look(int fd) {
  TELL(pread(fd, got, 50, 1000));
  tell_bytes("pread", got, 50);
}

static void tell_action(int number) {
  struct sigaction now;
  TELL(__sigaction(number, NULL, &now));
  TELL(now.sa_handler == SIG_DFL ? 0 : now.sa_handler == SIG_IGN ? 1 : now.sa_handler == SIG_HOLD ? 2 : now.sa_handler == handler ? 3 : 9);
  TELL(now.sa_flags & (SA_RESTART | SA_RESETHAND | SA_NODEFER | SA_SIGINFO | SA_ONSTACK));
}

static void tell_caught(int number) {
  caught = 0;
  TELL(raise(number));
  TELL(caught);
}

static void by_signal(int number) { TELL(signal(number, handler) == SIG_DFL), tell_caught(number); }
static void by_ssignal(int number) { TELL(ssignal(number, handler) == SIG_DFL), tell_caught(number); }
static void by_bsd_signal(int number) { TELL(bsd_signal(number, handler) == SIG_DFL), tell_caught(number); }
static void by_sysv_signal(int number) { TELL(sysv_signal(number, handler) == SIG_DFL), tell_caught(number); }
static void by_reserved_name(int number) { TELL(__sysv_signal(number, handler) == SIG_DFL), tell_caught(number); }

static void by_sigaction(int number) {
  struct sigaction action = {.sa_handler = handler, .sa_flags = SA_NODEFER};
  TELL(__sigaction(number, &action, NULL));
  tell_caught(number);
}

static void by_sigset(int number) {
  TELL(sigset(number, handler) == SIG_DFL);
  tell_caught(number);
  TELL(sigset(number, SIG_HOLD) == handler);
  tell_caught(number);
  TELL(sigset(number, handler) == SIG_HOLD);
  TELL(caught);
}

static void by_sigignore(int number) { TELL(sigignore(number)), tell_caught(number); }

static void by_sighold(int number) {
  TELL(signal(number, handler) == SIG_DFL);
  TELL(sighold(number));
  tell_caught(number);
  TELL(sigrelse(number));
  TELL(caught);
}

static void by_held(int number) {
  TELL(sighold(number));
  TELL(raise(number));
  TELL(sigset(number, handler) == SIG_HOLD);
  TELL(caught);
}

static void by_siginterrupt(int number) {
  TELL(siginterrupt(number, 1));
  tell_action(number);
  TELL(siginterrupt(number, 0));
  TELL(signal(number, handler) == SIG_DFL);
  TELL(siginterrupt(number, 1));
  tell_caught(number);
}

static void by_mask(int number) {
  TELL(signal(number, handler) == SIG_DFL);
  TELL(sigblock(sigmask(number)));
  tell_caught(number);
  TELL(sigblock(0) == sigmask(number));
  TELL(sigsetmask(0) == sigmask(number));
  TELL(caught);
  TELL(sigsetmask(sigmask(number)));
  TELL(sigsetmask(0) == sigmask(number));
}

static void by_nothing(int number) { TELL(raise(number)); }

// Each in a child of its own: before the file is read and while it is.
static void in_children(const char *name, void (*act)(int)) {
  static const int numbers[] = {SIGUSR1, SIGBUS};
  for (int n = 0; n < 4; n++) {
    say(name);
    pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_DUMPABLE, 0);
      int fd = n / 2 ? reader() : open("file", O_RDONLY);
      act(numbers[n % 2]);
      look(fd);
      tell_action(numbers[n % 2]);
      look(reader());
      _exit(7);
    }
    tell_child(pid);
  }
}

#define IN_CHILDREN(act) in_children("{\"by\":\"" #act "\"}\n", act)

int main(void) {
  static char bytes[BYTES];
  int fd = scratch("file");
  TELL(write(fd, pattern(bytes, BYTES, 5), BYTES));
  TELL(close(fd));
  IN_CHILDREN(by_signal);
  IN_CHILDREN(by_ssignal);
  IN_CHILDREN(by_bsd_signal);
  IN_CHILDREN(by_sysv_signal);
  IN_CHILDREN(by_reserved_name);
  IN_CHILDREN(by_sigaction);
  IN_CHILDREN(by_sigset);
  IN_CHILDREN(by_sigignore);
  IN_CHILDREN(by_sighold);
  IN_CHILDREN(by_held);
  IN_CHILDREN(by_siginterrupt);
  IN_CHILDREN(by_mask);
  IN_CHILDREN(by_nothing);
  TELL(signal(0, handler) == SIG_ERR);
  TELL(sigset(SIGKILL, handler) == SIG_ERR);
  TELL(sighold(1000));
  TELL(sigignore(-1));
  TELL(siginterrupt(SIGSTOP, 1));
}
