#include "probe.h"
#include <setjmp.h>
#include <ucontext.h>

// Jumps that bring back what the thread blocks, from where it blocks other signals, and what is read and written after.
extern void checked_jump(struct __jmp_buf_tag *, int) __asm__("__longjmp_chk") __attribute__((noreturn));

enum { BYTES = 50000 };

static int mapped, written;
static char got[100];
static sigjmp_buf back;
static ucontext_t main_context, other_context;
static char stack[1 << 16] __attribute__((aligned(64)));

static void block(int how, int number) {
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, number);
  sigprocmask(how, &one, NULL);
}

static void look(const char *where) {
  sigset_t now;
  memset(got, 0, sizeof got);
  TELL(pread(mapped, got, 50, 1000));
  tell_bytes(where, got, 50);
  TELL(write(written, where, strlen(where)));
  TELL(sigprocmask(SIG_BLOCK, NULL, &now));
  TELL(sigismember(&now, SIGBUS) * 10 + sigismember(&now, SIGUSR1));
}

typedef void jump(struct __jmp_buf_tag *, int) __attribute__((noreturn));

// There and back with the mask and without it, from a handler too.
static jump *of_handler;
static void handler(int number) { of_handler(back, number); }

static void by(const char *name, jump *away) {
  for (int round = 0; round < 4; round++) {
    int blocked = round & 1 ? SIGBUS : SIGUSR1, value;
    say(name);
    block(SIG_BLOCK, blocked);
    value = sigsetjmp(back, round < 2);
    TELL(value);
    if (value < 2) {
      block(SIG_UNBLOCK, blocked);
      look("before");
      away(back, value ? 7 : 0);
    }
    look("after");
    block(SIG_UNBLOCK, blocked);
  }
  of_handler = away;
  signal(SIGUSR2, handler);
  int value = sigsetjmp(back, 1);
  TELL(value);
  if (!value) raise(SIGUSR2);
  look("from a handler");
}

static void other(void) {
  for (;;) {
    look("in the other");
    block(SIG_BLOCK, SIGBUS);
    TELL(swapcontext(&other_context, &main_context));
  }
}

static void by_contexts(void) {
  TELL(getcontext(&other_context));
  other_context.uc_stack.ss_sp = stack;
  other_context.uc_stack.ss_size = sizeof stack;
  other_context.uc_link = NULL;
  makecontext(&other_context, other, 0);
  for (int round = 0; round < 3; round++) {
    TELL(swapcontext(&main_context, &other_context));
    look("in the main");
  }
  volatile int again = 0;
  block(SIG_BLOCK, SIGUSR1);
  TELL(getcontext(&main_context));
  look("a context");
  block(SIG_UNBLOCK, SIGUSR1);
  if (!again++) setcontext(&main_context);
  look("the end");
}

int main(void) {
  static char bytes[BYTES];
  written = scratch("written");
  mapped = often_read("mapped", bytes, BYTES, 4);
  by("{\"by\":\"longjmp\"}\n", longjmp);
  by("{\"by\":\"_longjmp\"}\n", _longjmp);
  by("{\"by\":\"siglongjmp\"}\n", siglongjmp);
  by("{\"by\":\"__longjmp_chk\"}\n", checked_jump);
  by_contexts();
  tell_file("written");
}
