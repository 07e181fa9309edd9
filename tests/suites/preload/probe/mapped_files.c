#include "probe.h"

enum { BYTES = 50000, ENOUGH = 100 };

static char got[20000];

// A descriptor for reading that has read often enough to be mapped, where files are.
static int reader(const char *name) {
  int fd = open(name, O_RDONLY), bad = 0;
  for (int n = 0; n < ENOUGH; n++) bad += pread(fd, got, 1, 0) < 0;
  TELL(bad);
  return fd;
}

static void look(int fd, off_t at, size_t length) {
  memset(got, 'x', sizeof got);
  TELL(pread(fd, got, length, at));
  tell_bytes("pread", got, length + 10);
}

static void by_another(void (*act)(int), int argument) {
  pid_t pid = fork();
  if (pid == 0) {
    act(argument);
    _exit(0);
  }
  tell_child(pid);
}

static void cut(int size) {
  if (truncate("file", size)) _exit(1);
}

static void empty(int size) {
  int fd = open("file", O_WRONLY | O_TRUNC);
  if (size && write(fd, pattern(got, size, 77), size) != size) _exit(2);
}

static void punch(int at) {
  int fd = open("file", O_WRONLY);
  if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, 5000)) _exit(3);
}

static void append(int length) {
  int fd = open("file", O_WRONLY | O_APPEND);
  if (write(fd, pattern(got, length, 55), length) != length) _exit(4);
}

static void replace(int length) {
  int fd = open("new", O_WRONLY | O_CREAT, 0644);
  if (write(fd, pattern(got, length, 66), length) != length || rename("new", "file")) _exit(5);
}

static void store(int at) {
  int fd = open("file", O_RDWR);
  char *map = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  memcpy(map + at, "stored", 6);
}

// What others do to a file that is read in small pieces.
int main(void) {
  static char bytes[BYTES];
  int fd = scratch("file");
  TELL(write(fd, pattern(bytes, BYTES, 3), BYTES));
  TELL(close(fd));
  fd = reader("file");
  look(fd, 100, 5000);
  look(fd, BYTES - 10, 100);
  look(fd, BYTES, 100);
  look(fd, BYTES + 5000, 10);
  look(fd, 3, 0);
  look(fd, 0, 17000);
  TELL(pread(fd, got, 10, -1));
  TELL(pread(fd, got, 10, 0x7ffffffffffffff0));
  TELL(pread(fd, NULL, 10, 0));
  TELL(pread(fd, (void *)4096, 10, 0));
  TELL(lseek(fd, 0, SEEK_CUR));
  by_another(append, 9000);
  look(fd, BYTES - 10, 100);
  by_another(cut, 30000);
  look(fd, 29000, 2000);
  look(fd, 40000, 10);
  by_another(append, 4000);
  look(fd, 29000, 2000);
  fd = reader("file");
  by_another(cut, 33000);
  look(fd, 32000, 2000);
  fd = reader("file");
  by_another(empty, 10000);
  look(fd, 9000, 2000);
  fd = reader("file");
  by_another(empty, 0);
  look(fd, 0, 100);
  by_another(append, 15000);
  look(fd, 0, 100);
  fd = reader("file");
  by_another(punch, 3000);
  look(fd, 2900, 6000);
  by_another(store, 3500);
  look(fd, 3400, 200);
  fd = reader("file");
  by_another(replace, 7000);
  look(fd, 6900, 200);
  int other = reader("file");
  look(other, 6900, 200);
  TELL(unlink("file"));
  look(other, 6900, 200);
  fd = scratch("file");
  TELL(write(fd, "another", 7));
  look(other, 0, 100);
  TELL(ftruncate(other, 5));
  TELL(write(other, "x", 1));
}
