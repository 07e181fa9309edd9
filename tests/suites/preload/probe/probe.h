// A probe makes system calls in the directory it is started in and prints what each returned, what errno became and
// which bytes are there, one JSON object a line. The same lines must come out wherever it runs.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

// A call that succeeds leaves errno alone.
#define UNTOUCHED 7777

static char line_of_probe[65536];

// Through the kernel and without stdio: the probe must not lean on what it probes.
static inline void say(const char *text) {
  size_t length = strlen(text);
  if (syscall(SYS_write, 1, text, length) != (long)length) _exit(99);
}

static inline void tell(const char *call, long long result, int error) {
  char quoted[512];
  size_t to = 0;
  for (; *call && to < sizeof quoted - 2; call++) {
    if (*call == '"' || *call == '\\') quoted[to++] = '\\';
    quoted[to++] = *call;
  }
  quoted[to] = 0;
  snprintf(line_of_probe, sizeof line_of_probe, "{\"call\":\"%s\",\"result\":%lld,\"errno\":\"%s\"}\n", quoted, result,
           error == UNTOUCHED ? "untouched" : strerrorname_np(error));
  say(line_of_probe);
}

#define TELL(expression)                      \
  ({                                          \
    errno = UNTOUCHED;                        \
    long long result = (long long)(expression); \
    tell(#expression, result, errno);         \
    result;                                   \
  })

// The same for descriptors, whose number is nobody's business.
#define TELL_OPEN(expression)                  \
  ({                                           \
    errno = UNTOUCHED;                         \
    int result = (expression);                 \
    tell(#expression, result < 0 ? -1 : 0, errno); \
    result;                                    \
  })

// Bytes of a buffer: the first 48 in hexadecimal, and a sum of all.
static inline void tell_bytes(const char *what, const void *bytes, size_t length) {
  const unsigned char *byte = bytes;
  uint64_t sum = 1469598103934665603u;
  char shown[97] = "";
  for (size_t n = 0; n < length; n++) {
    sum = (sum ^ byte[n]) * 1099511628211u;
    if (n < 48) snprintf(shown + 2 * n, 3, "%02x", byte[n]);
  }
  snprintf(line_of_probe, sizeof line_of_probe, "{\"bytes\":\"%s\",\"length\":%zu,\"first\":\"%s\",\"sum\":\"%016llx\"}\n", what,
           length, shown, (unsigned long long)sum);
  say(line_of_probe);
}

// The file's bytes, seen by a descriptor of its own that no library knows.
static inline void tell_file(const char *name) {
  static char bytes[1 << 22];
  long fd = syscall(SYS_openat, AT_FDCWD, name, O_RDONLY);
  long length = fd < 0 ? -1 : syscall(SYS_pread64, fd, bytes, sizeof bytes, 0);
  if (length < 0) {
    tell(name, -1, errno);
    return;
  }
  tell_bytes(name, bytes, (size_t)length);
  syscall(SYS_close, fd);
}

static inline void tell_size(const char *name) {
  struct stat status;
  int result = stat(name, &status);
  tell("stat, size", result < 0 ? -1 : (long long)status.st_size, result < 0 ? errno : UNTOUCHED);
}

// Fills with bytes that tell where they belong.
static inline void *pattern(void *buffer, size_t length, unsigned seed) {
  unsigned char *byte = buffer;
  for (size_t n = 0; n < length; n++) byte[n] = (unsigned char)((n * 131 + seed * 29) ^ (n >> 8));
  return buffer;
}

// An empty file that has been written to often enough to have a window, where there are windows.
static inline int scratch(const char *name) {
  int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
  for (int n = 0; n < 4; n++) {
    if (pwrite(fd, "window", 6, 0) != 6) _exit(97);
  }
  if (ftruncate(fd, 0)) _exit(96);
  return fd;
}

// A new file that has been read so often that it is mapped, where files are.
static inline int often_read(const char *name, void *bytes, size_t length, unsigned seed) {
  char got;
  int bad = 0, fd = scratch(name);
  TELL(write(fd, pattern(bytes, length, seed), length));
  TELL(close(fd));
  fd = open(name, O_RDONLY);
  for (int n = 0; n < 100; n++) bad += pread(fd, &got, 1, 0) != 1;
  TELL(bad);
  return fd;
}

static inline void tell_child(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  tell("child", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), UNTOUCHED);
}
