// Small reads that the library copies out of a mapping. Each story prints one line; where it says "wrong", bytes or answers were.
//   mapped used READS          how many mappings of the file there are after so many reads, after a second descriptor's, after its close
//   mapped beside ROUNDS       another process cuts the file and makes it longer again: what begins after a cut sees it
//   mapped cut REPLICAS        the replica is cut behind the agent's back while it is mapped
//   mapped failing REPLICAS IMAGE  the medium of the replica fails
//   mapped between             the file is cut in the middle of a copy
//   mapped blocked REPLICAS    the same, for a thread that blocks the signal of a fault
//   mapped suspended REPLICAS  the same, for a handler under a mask that blocks it, in each call that waits with such a mask
//   mapped jumped REPLICAS     the same, where a jump or a change of context brought back a mask that blocks it
//   mapped held|blocked|set|paused|waited_as_of_old   old calls about signals end mappings
//   mapped plain|own|asked|late|masked|forked|limited|limits|locked|filtered|unshared|queried|vforked|lent|holed
//                              what ends mappings, or keeps them from being used
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <ftw.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "mapped.h"

static int used(int reads) {
  make();
  int fd = warm(reads), one = mappings(), other = warm(reads), two = mappings();
  close(other);
  int again = mappings();
  close(fd);
  printf("%d %d %d %d\n", one, two, again, mappings());
  return 0;
}

struct shared {
  volatile unsigned turn; // odd while the file is being cut or filled
  volatile size_t size;
  volatile int over;
};

static void cutter(struct shared *shared, int rounds) {
  unsigned random = 7;
  int fd = open("file", O_WRONLY);
  for (int round = 0; round < rounds; round++) {
    random = random * 1103515245 + 12345;
    size_t size = 1 + (random >> 8) % (PAGES * PAGE - 1);
    __atomic_add_fetch(&shared->turn, 1, __ATOMIC_SEQ_CST);
    if (round % 3 == 2) {
      int again = open("file", O_WRONLY | O_TRUNC);
      fill(again, 0, size);
      close(again);
    } else if (round % 3 == 1) {
      if (truncate("file", size)) exit(93);
    } else if (ftruncate(fd, size)) exit(93);
    shared->size = size;
    __atomic_add_fetch(&shared->turn, 1, __ATOMIC_SEQ_CST);
    usleep(500);
    __atomic_add_fetch(&shared->turn, 1, __ATOMIC_SEQ_CST);
    fill(fd, size, PAGES * PAGE);
    shared->size = PAGES * PAGE;
    __atomic_add_fetch(&shared->turn, 1, __ATOMIC_SEQ_CST);
    usleep(500);
  }
  shared->over = 1;
  _exit(0);
}

// A read around the end, beginning and ending while the file stays as it is.
static int look(struct shared *shared, int fd, unsigned random, int *still) {
  static char got[PAGE];
  unsigned turn = __atomic_load_n(&shared->turn, __ATOMIC_SEQ_CST);
  size_t size = shared->size, at = random % (PAGES * PAGE), length = 1 + (random >> 20) % PAGE;
  if (random & 1) at = size > 300 ? size - 300 : 0;
  memset(got, 'x', sizeof got);
  ssize_t read = pread(fd, got, length, at);
  if (turn % 2 || turn != __atomic_load_n(&shared->turn, __ATOMIC_SEQ_CST)) return 0;
  ++*still;
  ssize_t want = at >= size ? 0 : size - at < length ? size - at : length;
  return read != want || !right(got, at, want) || (read < PAGE && got[read > 0 ? read : 0] != 'x');
}

static int beside(int rounds) {
  struct shared *shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  make();
  shared->size = PAGES * PAGE;
  pid_t pid = fork();
  if (pid == 0) cutter(shared, rounds);
  int wrong = 0, still = 0, mapped = 0, opens = 0;
  for (unsigned random = 1; !shared->over; opens++) {
    int fd = open("file", O_RDONLY);
    for (int n = 0; n < WARM; n++) {
      char byte;
      (void)!pread(fd, &byte, 1, 0);
    }
    mapped += mappings() > 0;
    for (int n = 0; n < 2000; n++) wrong += look(shared, fd, random = random * 1664525 + 1013904223, &still);
    close(fd);
  }
  waitpid(pid, NULL, 0);
  if (wrong || still < 1000 || mapped * 4 < opens)
    printf("%d of %d wrong, %d of %d mapped\n", wrong, still, mapped, opens);
  else
    printf("right\n");
  return 0;
}

static char replica[4096];
static struct timespec newest;

static int is_replica(const char *path, const struct stat *status, int kind, struct FTW *walk) {
  (void)walk;
  struct timespec of = status->st_mtim;
  if (kind != FTW_F || status->st_size != PAGES * PAGE) return 0;
  if (of.tv_sec < newest.tv_sec || (of.tv_sec == newest.tv_sec && of.tv_nsec < newest.tv_nsec)) return 0;
  newest = of;
  strcpy(replica, path);
  return 0;
}

static void find(const char *replicas) {
  if (nftw(replicas, is_replica, 16, FTW_PHYS) || !replica[0]) exit(94);
}

static int cut(const char *replicas) {
  static char got[PAGE];
  make();
  int fd = warm(WARM), mapped = mappings();
  find(replicas);
  int right_before = check(fd);
  if (truncate(replica, 20 * PAGE)) return 95;
  ssize_t behind = pread(fd, got, PAGE, 100 * PAGE), across = pread(fd, got, PAGE, 20 * PAGE - 96);
  printf("%d %d %zd %zd %d\n", mapped, right_before, behind, across, right(got, 20 * PAGE - 96, 96));
  return 0;
}

static int failing(const char *replicas, const char *image) {
  static char got[PAGE];
  make();
  find(replicas);
  int of = open(replica, O_RDWR);
  if (fsync(of) || posix_fadvise(of, 0, 0, POSIX_FADV_DONTNEED)) return 95;
  int fd = warm(WARM), mapped = mappings();
  // The loop device has nothing behind it any more.
  if (posix_fadvise(of, 0, 0, POSIX_FADV_DONTNEED) || truncate(image, 1 << 20)) return 96;
  errno = 0;
  ssize_t read = pread(fd, got, PAGE, 200 * PAGE);
  printf("%d %zd %s\n", mapped, read, strerrorname_np(errno));
  return 0;
}

static char *room;

// The second half of the buffer is not there: it comes when the file has been cut.
static void cut_between(int number) {
  (void)number;
  if (truncate("file", 3000) || mprotect(room + PAGE, PAGE, PROT_READ | PROT_WRITE)) _exit(98);
}

static int between(void) {
  make();
  signal(SIGSEGV, cut_between);
  room = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  int fd = warm(WARM), mapped = mappings();
  mprotect(room + PAGE, PAGE, PROT_NONE);
  ssize_t read = pread(fd, room + PAGE / 2, PAGE, 0);
  printf("%d %zd %d\n", mapped, read, right(room + PAGE / 2, 0, 3000));
  return 0;
}

static volatile int caught;
static void handler(int number) { caught += number == SIGBUS; }

// A page behind the end of a mapping of the program's own.
static void fault(void) {
  int fd = open("short", O_RDWR | O_CREAT | O_TRUNC, 0644);
  if (fd < 0 || ftruncate(fd, PAGE)) exit(97);
  volatile char *map = mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, fd, 0);
  (void)map[PAGE];
}

static int dies_of(void (*of)(void)) {
  int status;
  pid_t pid = fork();
  if (pid == 0) {
    of();
    _exit(0);
  }
  waitpid(pid, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void be_killed(void) { kill(getpid(), SIGBUS); }

static void *blocking_thread(void *number) {
  char got[8];
  int fd = (int)(long)number, bad = pread(fd, got, 8, 0) != 8;
  sigset_t bus;
  sigemptyset(&bus);
  sigaddset(&bus, SIGBUS);
  pthread_sigmask(SIG_BLOCK, &bus, NULL);
  bad += truncate(replica, 10 * PAGE) != 0;
  for (int n = 0; n < 3; n++) bad += pread(fd, got, 8, 100 * PAGE) != 0;
  return (void *)(long)bad;
}

static int read_by_handler = -1;
static volatile int wrong_in_handler = 1;

static void reading_handler(int number) {
  char got[8];
  (void)number;
  wrong_in_handler = truncate(replica, 10 * PAGE) || pread(read_by_handler, got, 8, 100 * PAGE) != 0;
}

static sigset_t others;
static int by_sigsuspend(void) { return sigsuspend(&others); }
static int by_ppoll(void) { return ppoll(NULL, 0, NULL, &others); }
static int by_pselect(void) { return pselect(0, NULL, NULL, NULL, NULL, &others); }

static int by_epoll_pwait(void) {
  struct epoll_event event;
  return epoll_pwait(epoll_create1(0), &event, 1, -1, &others);
}

static int by_epoll_pwait2(void) {
  struct epoll_event event;
  return epoll_pwait2(epoll_create1(0), &event, 1, NULL, &others);
}

// The same by the names that other functions of the C library use, and by the system calls.
extern int __sigsuspend(const sigset_t *);
extern int __ppoll_chk(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *, size_t);
static int by_another_sigsuspend(void) { return __sigsuspend(&others); }
static int by_checked_ppoll(void) { return __ppoll_chk(NULL, 0, NULL, &others, 0); }
static int by_call_of_sigsuspend(void) { return syscall(SYS_rt_sigsuspend, &others, 8); }
static int by_call_of_ppoll(void) { return syscall(SYS_ppoll, NULL, 0, NULL, &others, 8); }

static int by_call_of_pselect(void) {
  struct { const sigset_t *set; size_t bytes; } mask = {&others, 8};
  return syscall(SYS_pselect6, 0, NULL, NULL, NULL, NULL, &mask);
}

static int by_call_of_epoll_pwait(void) {
  struct epoll_event event;
  return syscall(SYS_epoll_pwait, epoll_create1(0), &event, 1, -1, &others, 8);
}

static int by_call_of_epoll_pwait2(void) {
  struct epoll_event event;
  return syscall(SYS_epoll_pwait2, epoll_create1(0), &event, 1, NULL, &others, 8);
}

// A handler that runs while the thread waits with all signals blocked but that one.
static int suspended(int fd) {
  int (*const waits[])(void) = {by_sigsuspend, by_ppoll, by_pselect, by_epoll_pwait, by_epoll_pwait2, by_another_sigsuspend,
                                by_checked_ppoll, by_call_of_sigsuspend, by_call_of_ppoll, by_call_of_pselect,
                                by_call_of_epoll_pwait, by_call_of_epoll_pwait2};
  sigset_t one;
  int wrong = 0;
  read_by_handler = fd;
  sigemptyset(&one);
  sigaddset(&one, SIGUSR1);
  sigfillset(&others);
  sigdelset(&others, SIGUSR1);
  signal(SIGUSR1, reading_handler);
  sigprocmask(SIG_BLOCK, &one, NULL);
  for (size_t n = 0; n < sizeof waits / sizeof *waits; n++) {
    wrong_in_handler = 1;
    // It may say so anew.
    sigprocmask(SIG_BLOCK, &one, NULL);
    raise(SIGUSR1);
    wrong += !check(fd);
    wrong += waits[n]() != -1 || errno != EINTR;
    wrong += wrong_in_handler;
  }
  return wrong;
}

static void change_mask(int how) {
  sigset_t bus;
  sigemptyset(&bus);
  sigaddset(&bus, SIGBUS);
  sigprocmask(how, &bus, NULL);
}

typedef void jump(struct __jmp_buf_tag *, int) __attribute__((noreturn));
extern jump checked_jump __asm__("__longjmp_chk");

static char got_by_jump[8];
static ucontext_t here, by_swap;

// A mapped read where nothing is blocked, and back.
static void read_there(int fd) {
  change_mask(SIG_UNBLOCK);
  if (pread(fd, got_by_jump, 8, 50) != 8) exit(97);
}

static int jumped(int fd) {
  jump *const jumps[] = {longjmp, _longjmp, siglongjmp, checked_jump};
  volatile size_t n;
  volatile int wrong = 0, turn = 0;
  for (n = 0; n < 6; n++) {
    sigjmp_buf back;
    int whole = open(replica, O_WRONLY);
    fill(whole, 10 * PAGE, PAGES * PAGE);
    close(whole);
    turn = 0;
    change_mask(SIG_BLOCK);
    if (n < 4) {
      if (!sigsetjmp(back, 1)) {
        read_there(fd);
        jumps[n](back, 1);
      }
    } else {
      getcontext(&here);
      if (!turn++) {
        read_there(fd);
        if (n == 4) setcontext(&here);
        swapcontext(&by_swap, &here);
      }
    }
    wrong += truncate(replica, 10 * PAGE) != 0;
    wrong += pread(fd, got_by_jump, 8, 100 * PAGE) != 0;
    change_mask(SIG_UNBLOCK);
  }
  return wrong;
}

// Calls of old, under names of which the compiler does not warn. The one that waits takes a mask, whatever the headers say.
extern int old_hold(int) __asm__("sighold"), old_block(int) __asm__("sigblock"), old_set(int) __asm__("sigsetmask");
extern int old_pause(int) __asm__("sigpause"), older_pause(int, int) __asm__("__sigpause");

static int as_of_old(const char *story) {
  const int bus = 1 << (SIGBUS - 1), usr1 = 1 << (SIGUSR1 - 1);
  if (story[0] == 'h') return old_hold(SIGBUS);
  if (story[0] == 'b') return old_block(bus);
  if (story[0] == 's') return old_set(bus);
  signal(SIGUSR1, handler);
  old_block(usr1);
  raise(SIGUSR1);
  return (story[0] == 'p' ? old_pause(bus) : older_pause(bus, 0)) != -1 || errno != EINTR;
}

// A child that shares the memory opens a file; the number means a duplicate here, which is not counted.
static int lent(int fd) {
  static char got[PAGE];
  int status;
  pid_t pid = vfork();
  if (pid == 0) _exit(open("file", O_RDONLY));
  waitpid(pid, &status, 0);
  int number = dup(fd), before = mappings();
  for (int n = 0; n < WARM; n++)
    if (pread(number, got, 100, 0) != 100) return 99;
  return number != WEXITSTATUS(status) ? 98 : mappings() - before;
}

static int signals(const char *story, const char *replicas) {
  make();
  struct rlimit limit = {1L << 40, RLIM_INFINITY};
  struct sigaction old = {.sa_flags = 77}, new = {.sa_handler = handler};
  if (!strcmp(story, "own")) signal(SIGBUS, handler);
  if (!strcmp(story, "masked")) {
    sigfillset(&new.sa_mask);
    sigaction(SIGUSR1, &new, NULL);
  }
  if (!strcmp(story, "queried")) sigaction(SIGBUS, NULL, &old);
  if (!strcmp(story, "locked")) mlockall(MCL_CURRENT);
  if (!strcmp(story, "limited")) {
    // As one that the program was started with.
    syscall(SYS_setrlimit, RLIMIT_AS, &limit);
  }
  int fd = warm(WARM), mapped = mappings(), told = 0;
  if (!strcmp(story, "limits")) setrlimit(RLIMIT_AS, &limit);
  // Refused: an address that is not there for the filter.
  if (!strcmp(story, "filtered")) prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL);
  if (!strcmp(story, "holed")) {
    char got[8] = "notzero";
    int writer = open("file", O_WRONLY);
    if (fallocate(writer, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 8 * PAGE, 8 * PAGE)) exit(98);
    told = pread(fd, got, sizeof got, 10 * PAGE) != sizeof got || memcmp(got, "\0\0\0\0\0\0\0\0", sizeof got);
    close(writer);
  }
  if (strstr(story, "_as_of_old")) told = as_of_old(story);
  if (!strcmp(story, "unshared")) told = unshare(CLONE_FILES);
  if (!strcmp(story, "vforked")) {
    pid_t pid = vfork();
    if (pid == 0) {
      signal(SIGBUS, SIG_IGN);
      _exit(0);
    }
    waitpid(pid, NULL, 0);
    told = mappings() != 1 || sigaction(SIGBUS, NULL, &old) || old.sa_handler != SIG_DFL;
  }
  if (!strcmp(story, "suspended")) {
    find(replicas);
    told = suspended(fd);
  }
  if (!strcmp(story, "jumped")) {
    find(replicas);
    told = jumped(fd);
  }
  if (!strcmp(story, "lent")) told = lent(fd);
  if (!strcmp(story, "asked")) told = sigaction(SIGBUS, NULL, &old) || old.sa_handler != SIG_DFL || old.sa_flags;
  if (!strcmp(story, "late")) told = signal(SIGBUS, handler) != SIG_DFL;
  if (!strcmp(story, "plain")) told = dies_of(fault) * 100 + dies_of(be_killed);
  if (!strcmp(story, "blocked")) {
    pthread_t thread;
    void *result;
    find(replicas);
    pthread_create(&thread, NULL, blocking_thread, (void *)(long)fd);
    pthread_join(thread, &result);
    told = (long)result;
  }
  if (!strcmp(story, "forked")) {
    int status;
    pid_t pid = fork();
    if (pid == 0) {
      int inherited = mappings(), same = check(fd), own = warm(WARM), mine = mappings(), right = check(own), again = check(fd);
      sigaction(SIGBUS, NULL, &old);
      _exit(inherited | same << 1 | mine << 2 | right << 3 | (old.sa_handler != SIG_DFL) << 4 | again << 5);
    }
    waitpid(pid, &status, 0);
    told = WEXITSTATUS(status);
  }
  int fine = check(fd), after = mappings();
  if (!strcmp(story, "late") || !strcmp(story, "own")) raise(SIGBUS);
  printf("%d %d %d %d %d\n", mapped, told, fine, after, caught);
  return 0;
}

int main(int count, char **words) {
  (void)count;
  if (!strcmp(words[1], "used")) return used(atoi(words[2]));
  if (!strcmp(words[1], "beside")) return beside(atoi(words[2]));
  if (!strcmp(words[1], "cut")) return cut(words[2]);
  if (!strcmp(words[1], "between")) return between();
  if (!strcmp(words[1], "failing")) return failing(words[2], words[3]);
  return signals(words[1], words[2]);
}
