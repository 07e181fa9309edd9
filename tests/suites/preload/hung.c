// An agent that hangs: a program that would ask it for a window goes on without. Each story prints one line.
//   hung write  a signal that would end the program is not held back; what the program has open the kernel closes when the agent answers
//   hung advice what it says of its reads it says to the kernel alone
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { HANGS_SECONDS = 4, SOON_MS = 2000 };

static pid_t agent(void) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  struct ucred peer;
  socklen_t length = sizeof peer;
  int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
  strncpy(address.sun_path, getenv("FOREBAY_WINDOW_SOCKET"), sizeof address.sun_path - 1);
  if (connect(fd, (struct sockaddr *)&address, sizeof address) || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length))
    exit(95);
  close(fd);
  return peer.pid;
}

static long now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int has_stopped(pid_t pid) {
  char path[64], line[512] = "";
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  FILE *stat = fopen(path, "r");
  if (!stat || !fgets(line, sizeof line, stat)) exit(96);
  fclose(stat);
  return strstr(line, ") T ") || strstr(line, ") t ");
}

// Stops the agent. Whatever happens it goes on after some seconds: the process that sees to that.
static pid_t stop(pid_t pid) {
  pid_t saviour = fork();
  if (saviour == 0) {
    sleep(HANGS_SECONDS);
    kill(pid, SIGCONT);
    _exit(0);
  }
  if (kill(pid, SIGSTOP)) exit(97);
  while (!has_stopped(pid)) usleep(1000);
  return saviour;
}

static void go_on(pid_t pid, pid_t saviour) {
  kill(pid, SIGCONT);
  kill(saviour, SIGKILL);
  waitpid(saviour, NULL, 0);
}

// Whether the process has the signal in a set of its own, or of its only thread.
static int has(pid_t pid, const char *set, int number) {
  char path[64], line[512];
  unsigned long bits = 0;
  snprintf(path, sizeof path, "/proc/%d/status", pid);
  FILE *status = fopen(path, "r");
  if (!status) exit(96);
  while (fgets(line, sizeof line, status))
    if (!strncmp(line, set, strlen(set))) bits = strtoul(line + strlen(set) + 1, NULL, 16);
  fclose(status);
  return bits >> (number - 1) & 1;
}

static int of_write(void) {
  pid_t pid = agent();
  int ready[2], status;
  if (pipe(ready)) return 98;
  pid_t writer = fork();
  if (writer == 0) {
    int fd = open("file", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    for (int n = 0; n < 2; n++)
      if (write(fd, "some", 4) != 4) _exit(99);
    if (write(ready[1], "r", 1) != 1) _exit(99);
    while (!has_stopped(pid)) usleep(1000);
    (void)!write(fd, "more", 4);
    _exit(0);
  }
  char one;
  if (read(ready[0], &one, 1) != 1) return 98;
  pid_t saviour = stop(pid);
  while (!has(writer, "SigBlk", SIGALRM) && has_stopped(pid)) usleep(1000);
  kill(writer, SIGALRM);
  long began = now_ms();
  while (has(writer, "ShdPnd", SIGALRM)) usleep(1000);
  long took = now_ms() - began;
  int still = has_stopped(pid);
  go_on(pid, saviour);
  waitpid(writer, &status, 0);
  if (took > SOON_MS) printf("%ld ms ", took);
  printf("%d %d\n", still, WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM);
  return 0;
}

static int of_advice(void) {
  int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0644);
  if (fd < 0 || ftruncate(fd, 1 << 20)) exit(91);
  pid_t pid = agent();
  pid_t saviour = stop(pid);
  long began = now_ms();
  int told = posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
  long took = now_ms() - began;
  int still = has_stopped(pid);
  go_on(pid, saviour);
  if (took > SOON_MS) printf("%ld ms ", took);
  printf("%d %d\n", still, told);
  return 0;
}

int main(int count, char **words) {
  if (count < 2) return 64;
  return strcmp(words[1], "advice") ? of_write() : of_advice();
}
