// Random operations on a few files by two processes, and what each of them saw: in turn, and on one file, of which each has bytes of its
// own, at once.
//
//   chance DIRECTORY SEED OPERATIONS [PRELOAD]     every second operation is done by a child, with LD_PRELOAD=PRELOAD
//
// With an even seed files are open for writing alone, but for one of each process's own, and most operations are writes: then there are
// windows, of both on the same files, and they live longer than it takes to get one.
//
// Prints a line for each operation: what the caller saw. The same seed must print the same and leave the same bytes wherever it
// runs, and whichever of the two processes has a library preloaded.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FILES = 3, SLOTS = 5, BESIDE = SLOTS, LENGTH_MAX = 1 << 18, OFFSET_MAX = 1 << 20 };
enum { KINDS = 20, OPEN = 13, OPEN_BESIDE = KINDS, OPEN_OWN, CLOSE, LOOK, WRITE_BESIDE, WRITE_PARTS_BESIDE, READ_BESIDE };
enum { BESIDE_BYTES = 4 << 20, BLOCK = 64 << 10, CALM = 30, WRITES_ALONE = 2 };

struct order {
  uint32_t what, slot, other, length, seed;
  uint64_t offset;
};
struct answer {
  int64_t result, place;
  int32_t error;
  uint64_t sum;
};

static int slots[SLOTS + 1] = {-1, -1, -1, -1, -1, -1};
static unsigned char block[LENGTH_MAX];

static uint64_t sum_of(const unsigned char *byte, size_t length) {
  uint64_t sum = 1469598103934665603u;
  for (size_t n = 0; n < length; n++) sum = (sum ^ byte[n]) * 1099511628211u;
  return sum;
}

static void fill(uint32_t seed, size_t length) {
  for (size_t n = 0; n < length; n++) {
    seed = seed * 1664525 + 1013904223;
    block[n] = (unsigned char)(seed >> 24);
  }
}

static int64_t open_at(uint32_t slot, const char *name, int flags) {
  if (slots[slot] >= 0) close(slots[slot]);
  slots[slot] = open(name, flags, 0644);
  return slots[slot] < 0 ? -1 : 0;
}

static int64_t open_one(const struct order *order) {
  static const int flags[] = {O_RDWR | O_CREAT, O_RDWR | O_CREAT, O_WRONLY | O_CREAT, O_RDONLY, O_RDWR | O_CREAT | O_APPEND,
                              O_RDWR | O_CREAT | O_TRUNC};
  char name[16];
  snprintf(name, sizeof name, "file%u", order->other % FILES);
  return open_at(order->slot, name, flags[order->seed % 6]);
}

static int64_t open_beside(const struct order *order) {
  if (open_at(BESIDE, "beside", (order->seed == WRITES_ALONE ? O_WRONLY : O_RDWR) | O_CREAT)) return -1;
  return ftruncate(slots[BESIDE], BESIDE_BYTES);
}

/* Nobody else's, until somebody looks. */
static int64_t open_own(const struct order *order) {
  return open_at(order->slot, order->other % 2 ? "own1" : "own0", O_RDWR | O_CREAT);
}

/* All that is in a file, by an open of its own. */
static int64_t look(const struct order *order, uint64_t *sum) {
  static const char *const names[] = {"file0", "file1", "file2", "beside", "own0", "own1"};
  int fd = open(names[order->other % 6], O_RDONLY);
  int64_t all = 0, got;
  while (fd >= 0 && (got = read(fd, block, LENGTH_MAX)) > 0) all += got, *sum = *sum * 31 + sum_of(block, (size_t)got);
  if (fd >= 0) close(fd);
  return all;
}

static int64_t duplicate(const struct order *order) {
  int from = slots[order->slot], to = slots[order->other % SLOTS];
  if (from < 0 || order->slot == order->other % SLOTS) return -2;
  slots[order->other % SLOTS] = to >= 0 && order->seed % 2 ? dup2(from, to) : (to >= 0 ? close(to) : 0, dup(from));
  return 0;
}

static int64_t through_mapping(const struct order *order) {
  struct stat status;
  int fd = slots[order->slot];
  if (fstat(fd, &status) || status.st_size == 0) return -2;
  unsigned char *map = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (map == MAP_FAILED) return -3;
  size_t at = order->offset % (uint64_t)status.st_size, length = order->length;
  if (length > (size_t)status.st_size - at) length = (size_t)status.st_size - at;
  fill(order->seed, length);
  memcpy(map + at, block, length);
  munmap(map, (size_t)status.st_size);
  return (int64_t)length;
}

static int64_t child_writes(const struct order *order) {
  int fd = slots[order->slot], status = 0;
  fill(order->seed, order->length % 1000);
  pid_t pid = fork();
  if (pid == 0) _exit(write(fd, block, order->length % 1000) < 0);
  waitpid(pid, &status, 0);
  return status;
}

static void perform(const struct order *order, struct answer *answer) {
  int fd = slots[order->slot];
  size_t length = order->length;
  struct iovec parts[2] = {{block, length / 3}, {block + length / 3, length - length / 3}};
  struct stat status;
  memset(answer, 0, sizeof *answer);
  errno = 0;
  switch (order->what) {
    case 0: case 1: case 2: case 3: fill(order->seed, length); answer->result = pwrite(fd, block, length, (off_t)order->offset); break;
    case 4: case 5: case 6: fill(order->seed, length); answer->result = write(fd, block, length); break;
    case 7: fill(order->seed, length); answer->result = pwritev(fd, parts, 2, (off_t)order->offset); break;
    case 8: fill(order->seed, length); answer->result = writev(fd, parts, 2); break;
    case 9: case 10: answer->result = pread(fd, block, length, (off_t)order->offset); break;
    case 11: answer->result = read(fd, block, length); break;
    case 12: answer->result = lseek(fd, order->seed % 3 == 0 ? (off_t)order->offset : -(off_t)(order->length % 100),
                                    (int)(order->seed % 3)); break;
    case 13: answer->result = open_one(order); break;
    case 14: answer->result = duplicate(order); break;
    case 15: answer->result = ftruncate(fd, (off_t)order->offset); break;
    case 16: answer->result = order->seed % 2 ? fsync(fd) : fdatasync(fd); break;
    case 17: answer->result = through_mapping(order); break;
    case 18: answer->result = fstat(fd, &status) ? -1 : status.st_size; break;
    case 19: answer->result = child_writes(order); break;
    case OPEN_BESIDE: answer->result = open_beside(order); break;
    case OPEN_OWN: answer->result = open_own(order); break;
    case CLOSE: answer->result = slots[order->slot] < 0 ? -2 : close(slots[order->slot]), slots[order->slot] = -1; break;
    case LOOK: answer->result = look(order, &answer->sum); break;
    case WRITE_BESIDE: fill(order->seed, length); answer->result = pwrite(fd, block, length, (off_t)order->offset); break;
    case WRITE_PARTS_BESIDE: fill(order->seed, length); answer->result = pwritev(fd, parts, 2, (off_t)order->offset); break;
    case READ_BESIDE: answer->result = pread(fd, block, length, (off_t)order->offset); break;
  }
  answer->error = answer->result < 0 ? errno : 0;
  int reads = (order->what >= 9 && order->what <= 11) || order->what == READ_BESIDE;
  if (reads && answer->result > 0) answer->sum = sum_of(block, (size_t)answer->result);
  answer->place = slots[order->slot] < 0 ? -1 : lseek(slots[order->slot], 0, SEEK_CUR);
}

static void serve(int orders, int answers) {
  struct order order;
  struct answer answer;
  while (read(orders, &order, sizeof order) == sizeof order) {
    perform(&order, &answer);
    if (write(answers, &answer, sizeof answer) != sizeof answer) _exit(1);
  }
  _exit(0);
}

static uint64_t state;
static uint32_t chance(uint32_t below) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(state >> 33) % below;
}

static void start_child(char *self, char *preload, int *to, int *from) {
  extern char **environ;
  int down[2], up[2];
  char first[16], second[16];
  if (pipe(down) || pipe(up)) exit(1);
  fcntl(down[1], F_SETFD, FD_CLOEXEC);
  fcntl(up[0], F_SETFD, FD_CLOEXEC);
  snprintf(first, sizeof first, "%d", down[0]);
  snprintf(second, sizeof second, "%d", up[1]);
  char *words[] = {self, "serve", first, second, NULL};
  char *kept = getenv("LD_PRELOAD") ? strdup(getenv("LD_PRELOAD")) : NULL;
  if (preload && *preload) setenv("LD_PRELOAD", preload, 1);
  else unsetenv("LD_PRELOAD");
  pid_t pid;
  if (posix_spawn(&pid, self, NULL, NULL, words, environ)) exit(1);
  if (kept) setenv("LD_PRELOAD", kept, 1);
  close(down[0]);
  close(up[1]);
  *to = down[1];
  *from = up[0];
}

static void tell(long n, const struct order *order, const struct answer *answer) {
  printf("%ld what=%u slot=%u other=%u length=%u offset=%llu: %lld errno %d at %lld sum %016llx\n", n, order->what, order->slot, order->other,
         order->length, (unsigned long long)order->offset, (long long)answer->result, answer->error, (long long)answer->place,
         (unsigned long long)answer->sum);
}

static int to, from;

static void child_begins(const struct order *order) {
  if (write(to, order, sizeof *order) == sizeof *order) return;
  fprintf(stderr, "the child is gone\n");
  exit(1);
}

static void child_ends(struct answer *answer) {
  if (read(from, answer, sizeof *answer) == sizeof *answer) return;
  fprintf(stderr, "the child is gone\n");
  exit(1);
}

/* One that touches bytes of `side` alone: a part of every second block of the file that both have open. */
static struct order of_own_bytes(uint32_t side, int calm) {
  uint32_t at = chance(BLOCK), length = chance(4) ? chance(4000) : chance(BLOCK);
  if (length > BLOCK - at) length = BLOCK - at;
  uint64_t pairs = chance(BESIDE_BYTES / BLOCK / 2);
  return (struct order){WRITE_BESIDE + chance(calm ? 2 : 3), BESIDE, 0, length, chance(1u << 30), (2 * pairs + side) * BLOCK + at};
}

static struct order any(int calm) {
  uint32_t what = calm && chance(CALM) ? chance(OPEN) : calm && chance(2) ? LOOK : chance(KINDS);
  return (struct order){what, chance(SLOTS), chance(60), chance(8) ? chance(9000) : chance(LENGTH_MAX), chance(1u << 30),
                        chance(4) ? chance(60000) : chance(OFFSET_MAX)};
}

static void both(struct order order, uint32_t others) {
  struct answer answer;
  perform(&order, &answer);
  order.other = others;
  child_begins(&order);
  child_ends(&answer);
}

/* Both open all that they have; in a calm story, after both have closed all. */
static void begin(int calm) {
  uint32_t last = SLOTS - 1;
  for (uint32_t slot = 0; calm && slot <= SLOTS; slot++) both((struct order){CLOSE, slot, 0, 0, 0, 0}, 0);
  for (uint32_t slot = 0; calm && slot < last; slot++) both((struct order){OPEN, slot, slot, 0, WRITES_ALONE, 0}, slot);
  if (calm) both((struct order){OPEN_OWN, last, 0, 0, 0, 0}, 1);
  both((struct order){OPEN_BESIDE, BESIDE, 0, 0, calm ? WRITES_ALONE : 0, 0}, 0);
}

int main(int count, char **words) {
  if (count == 4 && !strcmp(words[1], "serve")) serve(atoi(words[2]), atoi(words[3]));
  if (count < 4 || chdir(words[1])) return 2;
  state = strtoull(words[2], NULL, 10) * 2654435761u + 1;
  int calm = strtoull(words[2], NULL, 10) % 2 == 0;
  start_child(words[0], count > 4 ? words[4] : NULL, &to, &from);
  begin(calm);
  for (long n = 0; n < atol(words[3]); n++) {
    struct order order, own;
    struct answer answer, owns;
    if (calm && chance(CALM) == 0) begin(calm);
    if (chance(4) == 0) {
      order = of_own_bytes(0, calm), own = of_own_bytes(1, calm);
      child_begins(&order);
      perform(&own, &owns);
      child_ends(&answer);
      tell(n, &own, &owns);
    } else {
      order = any(calm);
      if (chance(2)) perform(&order, &answer);
      else child_begins(&order), child_ends(&answer);
    }
    tell(n, &order, &answer);
  }
  fflush(stdout);
  close(to);
  wait(NULL);
  return 0;
}
