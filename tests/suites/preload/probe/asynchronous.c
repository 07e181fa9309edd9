#include "probe.h"

#include <aio.h>
#include <dlfcn.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <pthread.h>

// libaio and io_uring read what was written a moment before, whichever way they are called.
enum { BLOCK = 8192 };
static char block[BLOCK], got[BLOCK];

// Past every library, as programs do that have the ring's calls inside.
static long past(long number, long a, long b, long c, long d, long e, long f) {
  register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
  __asm__ volatile("syscall" : "+a"(number) : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
  return number;
}

static int by_syscall(aio_context_t context, long count, struct iocb **requests) {
  long done = syscall(SYS_io_submit, context, count, requests);
  return done < 0 ? -errno : done;
}

typedef int submit_function(aio_context_t, long, struct iocb **);

static long aio(submit_function *submit, int fd, int opcode, long at) {
  static aio_context_t context;
  if (!context && syscall(SYS_io_setup, 4, &context)) return -errno;
  struct iocb request = {.aio_lio_opcode = opcode, .aio_fildes = fd, .aio_buf = (uintptr_t)got, .aio_nbytes = BLOCK, .aio_offset = at};
  struct iocb *requests = &request;
  struct io_event event;
  long done = submit(context, 1, &requests);
  if (done != 1) return done;
  syscall(SYS_io_getevents, context, 1, 1, &event, NULL);
  return event.res;
}

static long ring(int by_library, int opcode, int fd, long at) {
  struct io_uring_params params = {0};
  long one = by_library ? syscall(SYS_io_uring_setup, 4, &params) : past(SYS_io_uring_setup, 4, (long)&params, 0, 0, 0, 0);
  if (one < 0) return -1;
  int rw = PROT_READ | PROT_WRITE;
  char *asked = mmap(NULL, params.sq_off.array + params.sq_entries * 4, rw, MAP_SHARED, one, IORING_OFF_SQ_RING);
  char *done = mmap(NULL, params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe), rw, MAP_SHARED, one, IORING_OFF_CQ_RING);
  struct io_uring_sqe *entry = mmap(NULL, params.sq_entries * sizeof *entry, rw, MAP_SHARED, one, IORING_OFF_SQES);
  *entry = (struct io_uring_sqe){.opcode = opcode, .fd = fd, .addr = (uintptr_t)got, .len = BLOCK, .off = at};
  *(unsigned *)(asked + params.sq_off.array) = 0;
  *(unsigned *)(asked + params.sq_off.tail) = 1;
  past(SYS_io_uring_enter, one, 1, 1, IORING_ENTER_GETEVENTS, 0, 0);
  long result = ((struct io_uring_cqe *)(done + params.cq_off.cqes))->res;
  close(one);
  return result;
}

// A file that has a window, where there are any.
static int written(const char *name) {
  int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
  for (int n = 0; n < 8; n++) write(fd, block, BLOCK);
  return fd;
}

static void in_child(void (*act)(void)) {
  pid_t pid = fork();
  if (pid == 0) {
    act();
    _exit(0);
  }
  tell_child(pid);
}

static void of_libaio(void) {
  dlopen("libaio.so.1", RTLD_NOW | RTLD_GLOBAL);
  submit_function *submit = (submit_function *)dlsym(RTLD_DEFAULT, "io_submit");
  if (!submit) submit = by_syscall;
  int fd = written("libaio");
  int same = dup(fd);
  TELL(aio(submit, same, IOCB_CMD_PREAD, 7 * BLOCK));
  tell_bytes("got", got + BLOCK - 20, 20);
  TELL(write(fd, "more", 4));
  TELL(aio(submit, fd, IOCB_CMD_PREAD, 8 * BLOCK));
  TELL(aio(submit, -1, IOCB_CMD_PREAD, 0));
  tell_file("libaio");
}

static void of_syscall(void) {
  int fd = written("syscall");
  TELL(aio(by_syscall, fd, IOCB_CMD_PREAD, 7 * BLOCK));
  TELL(write(fd, block, BLOCK));
  TELL(aio(by_syscall, fd, IOCB_CMD_PWRITE, 3 * BLOCK));
  tell_file("syscall");
}

static void of_a_ring(void) {
  int fd = written("ring");
  TELL(ring(1, IORING_OP_READ, fd, 7 * BLOCK));
  TELL(write(fd, block, BLOCK));
  TELL(ring(0, IORING_OP_READ, fd, 8 * BLOCK));
  TELL(ring(0, IORING_OP_WRITE, fd, 9 * BLOCK));
  tell_file("ring");
}

static int is_there(const char *library) {
  void *loaded = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (!loaded) say("{\"skipped\":\"what needs liburing.so.2, which is not there\"}\n");
  return loaded != NULL;
}

// It comes with liburing, which has the system calls inside: this very program, once more.
static void of_liburing(void) {
  char loaded[4096], itself[4096];
  const char *before = getenv("LD_PRELOAD");
  if (!is_there("liburing.so.2")) return;
  itself[readlink("/proc/self/exe", itself, sizeof itself - 1)] = 0;
  snprintf(loaded, sizeof loaded, "%s liburing.so.2", before ? before : "");
  setenv("LD_PRELOAD", loaded, 1);
  execl(itself, itself, "linked", (char *)NULL);
}

static void linked(void) {
  int fd = written("liburing");
  TELL(ring(0, IORING_OP_READ, fd, 7 * BLOCK));
  tell_file("liburing");
}

// A program that has no windows reads what the one that started it goes on writing to a file that both have open: past the agent,
// by a ring or by the kernel alone. `how` it makes rings: 'r' past the library, 'l' by it, 'n' not at all; or, 'b', past it, where what
// it has is written by another open file.
enum { ROUNDS = 5 };
static void of_an_heir(const char *variable, const char *value, char how) {
  char itself[4096], numbers[3][16], *before = getenv(variable), all[4096], go, ways[2] = {how};
  unlink(value);
  int fd = written(value), writer = how == 'b' ? open(value, O_WRONLY | O_CLOEXEC) : fd, to[2], from[2];
  for (int n = 0; n < 4; n++) pwrite(writer, block, BLOCK, 0);
  lseek(writer, 0, SEEK_END);
  pipe(to);
  pipe(from);
  pid_t pid = fork();
  if (pid == 0) {
    close(to[1]);
    close(from[0]);
    itself[readlink("/proc/self/exe", itself, sizeof itself - 1)] = 0;
    snprintf(all, sizeof all, "%s%s%s", before && *value == 'l' ? before : "", before && *value == 'l' ? " " : "", value);
    setenv(variable, all, 1);
    snprintf(numbers[0], 16, "%d", fd);
    snprintf(numbers[1], 16, "%d", to[0]);
    snprintf(numbers[2], 16, "%d", from[1]);
    execl(itself, itself, numbers[0], numbers[1], numbers[2], ways, (char *)NULL);
  }
  close(to[0]);
  close(from[1]);
  while (read(from[0], &go, 1) == 1) {
    write(writer, block, BLOCK);
    write(to[1], &go, 1);
  }
  tell_child(pid);
  tell_file(value);
  close(fd);
}

static void heir(int fd, int from, int to, char how) {
  int through[2];
  close(open("of an heir", O_WRONLY | O_CREAT, 0644));
  char go = 'g';
  pipe(through);
  for (int n = 0; n < ROUNDS; n++) {
    off_t at = (8 + 2 * n) * BLOCK;
    write(to, &go, 1);
    read(from, &go, 1);
    if (how != 'n') TELL(ring(how == 'l', IORING_OP_READ, fd, at));
    if (how != 'n') TELL(memcmp(got, block, BLOCK));
    write(to, &go, 1);
    read(from, &go, 1);
    at += BLOCK;
    TELL(sendfile(through[1], fd, &at, BLOCK));
    memset(got, 0, BLOCK);
    fcntl(through[0], F_SETFL, O_NONBLOCK);
    read(through[0], got, BLOCK);
    TELL(memcmp(got, block, BLOCK));
  }
}

static void of_heirs(void) {
  of_an_heir("FOREBAY_WINDOW", "off", 'r');
  of_an_heir("FOREBAY_WINDOW", "off", 'b');
  of_an_heir("FOREBAY_WINDOW_SOCKET", "nowhere", 'l');
  of_an_heir("FOREBAY_WINDOW_SOCKET", "nowhere", 'n');
  if (is_there("liburing.so.2")) of_an_heir("LD_PRELOAD", "liburing.so.2", 'r');
}

// One that it loads for itself alone is its own.
static void of_a_library(void) {
  static long room[1024];
  if (!is_there("liburing.so.2")) return;
  void *library = dlopen("liburing.so.2", RTLD_NOW | RTLD_LOCAL);
  int (*begin)(unsigned, void *, unsigned) = dlsym(library, "io_uring_queue_init");
  TELL(begin(4, room, 0));
  TELL(dlsym(RTLD_DEFAULT, "io_uring_queue_init") == NULL);
}

enum { FILES = 12 };
static int files[FILES];
static pthread_barrier_t together;

static void *reads_the_last(void *into) {
  aio_context_t context = 0;
  struct iocb request = {.aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = files[FILES - 1], .aio_buf = (uintptr_t)into, .aio_nbytes = BLOCK, .aio_offset = 7 * BLOCK};
  struct iocb *requests = &request;
  struct io_event event = {.res = -1};
  syscall(SYS_io_setup, 4, &context);
  pthread_barrier_wait(&together);
  if (syscall(SYS_io_submit, context, 1, &requests) == 1) syscall(SYS_io_getevents, context, 1, 1, &event, NULL);
  return (void *)(intptr_t)event.res;
}

// The first gives all windows back; the second comes meanwhile.
static void of_two_threads(void) {
  static char mine[BLOCK], other[BLOCK];
  pthread_t thread;
  void *had;
  for (int n = 0; n < FILES; n++) {
    char name[32];
    snprintf(name, sizeof name, "thread %d", n);
    files[n] = written(name);
  }
  pthread_barrier_init(&together, NULL, 2);
  pthread_create(&thread, NULL, reads_the_last, other);
  TELL(reads_the_last(mine));
  pthread_join(thread, &had);
  TELL(had);
  TELL(memcmp(mine, block, BLOCK) || memcmp(other, block, BLOCK));
}

// Its child asks for the end of a file that has a window of its parent's.
static void of_a_child(void) {
  int fd = written("of a child");
  pid_t pid = fork();
  if (pid == 0) {
    TELL(aio(by_syscall, fd, IOCB_CMD_PREAD, 7 * BLOCK));
    _exit(0);
  }
  tell_child(pid);
  TELL(write(fd, block, BLOCK));
  tell_file("of a child");
}

static void of_the_c_library(void) {
  int fd = written("posix");
  struct aiocb request = {.aio_fildes = fd, .aio_buf = got, .aio_nbytes = BLOCK, .aio_offset = 7 * BLOCK};
  TELL(aio_read(&request));
  const struct aiocb *requests = &request;
  while (aio_error(&request) == EINPROGRESS) aio_suspend(&requests, 1, NULL);
  TELL(aio_return(&request));
  tell_file("posix");
}

int main(int count, char **words) {
  pattern(block, sizeof block, 3);
  if (count > 4) {
    heir(atoi(words[1]), atoi(words[2]), atoi(words[3]), *words[4]);
    return 0;
  }
  if (count > 1) {
    linked();
    return 0;
  }
  in_child(of_libaio);
  in_child(of_syscall);
  in_child(of_a_ring);
  in_child(of_heirs);
  for (int n = 0; n < 4; n++) in_child(of_two_threads);
  in_child(of_a_child);
  in_child(of_liburing);
  in_child(of_a_library);
  in_child(of_the_c_library);
}
