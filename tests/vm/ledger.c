// What a machine that crashes must not lose. Writes records into files of a directory, makes each durable, and only
// then says so in a ledger outside the machine; after the crash, checks the files against the ledger. What goes to a window
// on persistent memory is durable as it is: no sync is asked for.
//
//   ledger write DIR OLD LEDGER [OPERATIONS]    goes on from the ledger OLD, until the machine is gone or that many are done
//   ledger verify DIR OLD          exit status 0 if every acknowledgement holds
//
// Lines of a ledger; each number of an operation is larger than those before it:
//   i NAME NUMBER    an operation that removes or replaces is about to begin (it may or may not have happened)
//   w FILE SLOT NUMBER   a record is durable         t FILE NUMBER   a truncation is durable
//   either with the word `window` behind it where nobody asked for a sync
//   c NAME NUMBER    a new file is durable            u NAME NUMBER   a removal is durable
//   b                the machine has started again
//   r NUMBER         a new directory, in which nothing is yet
//   p NAME NUMBER    a file was written under another name, closed, and renamed to this one; its name is durable with the next
//   a NAME NUMBER    line of another kind. A removal, likewise. Only with LEDGER_NAMES=yes: a plain directory promises less.
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

enum { FILES = 6, SLOTS = 64, NAMES = 24, RECORD = 4096 };

struct state {
  uint64_t slot[FILES][SLOTS]; // the least number that the slot may hold; 0: it may be absent
  uint64_t cut[FILES];         // nothing at or below this number may be seen
  uint64_t maybe_cut[FILES];   // a truncation of this number was begun and not acknowledged: what is older may be gone
  uint64_t name[NAMES];        // the least number that the file may hold; 0: it must be absent
  uint64_t begun[NAMES];       // an operation that was begun and not acknowledged
  uint64_t later[NAMES];       // of the files without a sync: the least number that the file may hold; 0: it must be absent
  uint64_t gone[NAMES];        // no number at or below this one may be seen: that file was removed
  uint64_t pending[NAMES];     // the last number that is not durable, of a file or a removal
  int maybe_gone[NAMES];       // a removal was begun that is not durable
  int is_removal[NAMES];       // what is pending is one
  uint64_t last;               // the largest number so far
};

static uint64_t random_state;
static uint32_t below(uint32_t bound) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(random_state >> 33) % bound;
}

static void fail(const char *what) {
  printf("ledger: %s: %s\n", what, strerror(errno));
  exit(2);
}

static void fill(char *record, uint32_t place, uint64_t number) {
  uint64_t words[2] = {number, place ^ 0x5ca1ab1e00000000u};
  for (int at = 0; at < RECORD; at += 16) memcpy(record + at, words, 16);
}

// The number of a whole record of this place; 0 if it is anything else.
static uint64_t number_of(const char *record, uint32_t place) {
  char expected[RECORD];
  uint64_t number;
  memcpy(&number, record, sizeof number);
  fill(expected, place, number);
  return memcmp(record, expected, RECORD) == 0 ? number : 0;
}

// What was pending is durable.
static void settle(struct state *s) {
  for (int n = 0; n < NAMES; n++) {
    if (!s->pending[n]) continue;
    s->later[n] = s->is_removal[n] ? 0 : s->pending[n];
    if (s->is_removal[n]) s->gone[n] = s->pending[n];
    s->pending[n] = s->maybe_gone[n] = 0;
  }
}

static void remember_later(struct state *s, char kind, unsigned n, uint64_t number) {
  if (kind == 'i') { // about to be renamed or removed
    s->maybe_gone[n] = 1;
    return;
  }
  s->pending[n] = number;
  s->is_removal[n] = kind == 'a';
  s->maybe_gone[n] |= kind == 'a';
}

static void remember(struct state *s, const char *path) {
  char line[128];
  FILE *ledger = fopen(path, "r");
  if (!ledger) return;
  while (fgets(line, sizeof line, ledger)) {
    unsigned a, b;
    unsigned long long n = 0;
    line[strcspn(line, "\r\n")] = 0;
    // After a crash what was pending may be there or not.
    if (line[0] == 'b') memset(s->pending, 0, sizeof s->pending);
    if (strchr("wtcu", line[0]) && strchr(line, ' ')) settle(s);
    if (sscanf(line, "r %llu", &n) == 1) memset(s, 0, offsetof(struct state, last));
    else if ((sscanf(line, "p x%u %llu", &a, &n) == 2 || sscanf(line, "a x%u %llu", &a, &n) == 2 || sscanf(line, "i x%u %llu", &a, &n) == 2) &&
             a < NAMES)
      remember_later(s, line[0], a, n);
    else if (sscanf(line, "w %u %u %llu", &a, &b, &n) == 3 && a < FILES && b < SLOTS) s->slot[a][b] = n;
    else if (sscanf(line, "t %u %llu", &a, &n) == 2 && a < FILES) {
      for (int i = 0; i < SLOTS; i++) s->slot[a][i] = 0;
      s->cut[a] = n;
      s->maybe_cut[a] = 0;
    } else if (sscanf(line, "i t%u %llu", &a, &n) == 2 && a < FILES) s->maybe_cut[a] = n;
    else if (sscanf(line, "i n%u %llu", &a, &n) == 2 && a < NAMES) s->begun[a] = n;
    else if (sscanf(line, "c n%u %llu", &a, &n) == 2 && a < NAMES) s->name[a] = n, s->begun[a] = 0;
    else if (sscanf(line, "u n%u %llu", &a, &n) == 2 && a < NAMES) s->name[a] = 0, s->begun[a] = 0;
    if (n > s->last) s->last = n;
  }
  fclose(ledger);
}

// Whether each file that was written without a sync is there, whole, and no removed one.
static int verify_later(const char *dir, const struct state *s, int *held, int *empty) {
  char path[256], record[RECORD];
  int wrong = 0;
  for (int n = 0; n < NAMES; n++) {
    snprintf(path, sizeof path, "%s/x%d", dir, n);
    int fd = open(path, O_RDONLY);
    ssize_t got = fd < 0 ? 0 : pread(fd, record, RECORD, 0);
    uint64_t number = got == RECORD ? number_of(record, 200000 + n) : 0;
    // Its name is promised, and its data is not.
    int is_empty = fd >= 0 && got == 0;
    int holds = fd < 0 ? !s->later[n] || s->maybe_gone[n] : is_empty || (number >= s->later[n] && number > s->gone[n]);
    *held += s->later[n] || s->gone[n];
    *empty += is_empty;
    if (!holds) {
      printf("ledger: x%d %s, holds %llu (read %zd), durable %llu, removed at %llu, pending %llu\n", n, fd < 0 ? "is absent" : "is there",
             (unsigned long long)number, got, (unsigned long long)s->later[n], (unsigned long long)s->gone[n], (unsigned long long)s->pending[n]);
      wrong++;
    }
    if (fd >= 0) close(fd);
  }
  return wrong;
}

static int verify(const char *dir, const struct state *s) {
  char path[256], record[RECORD];
  int held = 0, empty = 0, wrong = verify_later(dir, s, &held, &empty);
  for (int f = 0; f < FILES; f++) {
    snprintf(path, sizeof path, "%s/f%d", dir, f);
    int fd = open(path, O_RDONLY);
    for (int i = 0; i < SLOTS; i++) {
      ssize_t got = fd < 0 ? 0 : pread(fd, record, RECORD, (off_t)i * RECORD);
      uint64_t number = got == RECORD ? number_of(record, f * SLOTS + i) : 0;
      int zero = got == 0;
      if (got == RECORD && !number) {
        zero = 1;
        for (int b = 0; b < RECORD; b++) zero &= !record[b];
      }
      held += s->slot[f][i] != 0;
      if (number ? number >= s->slot[f][i] && number > s->cut[f] : zero && (!s->slot[f][i] || s->slot[f][i] < s->maybe_cut[f])) continue;
      printf("ledger: f%d slot %d holds %llu (read %zd), acknowledged %llu, cut at %llu\n", f, i, (unsigned long long)number,
             got, (unsigned long long)s->slot[f][i], (unsigned long long)s->cut[f]);
      wrong++;
    }
    if (fd >= 0) close(fd);
  }
  for (int n = 0; n < NAMES; n++) {
    snprintf(path, sizeof path, "%s/n%d", dir, n);
    int fd = open(path, O_RDONLY);
    ssize_t got = fd < 0 ? 0 : pread(fd, record, RECORD, 0);
    uint64_t number = got == RECORD ? number_of(record, 100000 + n) : 0;
    held += s->name[n] != 0;
    // What was begun may be half done: the file may be new, gone, or there without its content.
    int holds = s->begun[n] ? fd < 0 || number >= s->name[n] || got == 0 : s->name[n] ? number >= s->name[n] : fd < 0;
    if (!holds) {
      printf("ledger: n%d %s, holds %llu (read %zd), acknowledged %llu, begun %llu\n", n, fd < 0 ? "is absent" : "is there",
             (unsigned long long)number, got, (unsigned long long)s->name[n], (unsigned long long)s->begun[n]);
      wrong++;
    }
    if (fd >= 0) close(fd);
  }
  printf("ledger: %d acknowledgements hold, %d do not; %d files without their data, which nobody synced\n", held - wrong, wrong, empty);
  return wrong != 0;
}

static int ledger_fd;
static void say(const char *line) {
  if (write(ledger_fd, line, strlen(line)) < 0) fail("say");
  tcdrain(ledger_fd); // outside before we go on
}

static void sync_directory(const char *dir) {
  int fd = open(dir, O_RDONLY | O_DIRECTORY);
  if (fd < 0 || fsync(fd)) fail("sync directory");
  close(fd);
}

static void write_record(int fd, uint32_t place, off_t at, uint64_t number) {
  char record[RECORD];
  fill(record, place, number);
  if (pwrite(fd, record, RECORD, at) != RECORD) fail("write");
}

// A file whose name nobody syncs, or its removal.
static void change_later(const char *dir, int n, uint64_t number) {
  char path[256], other[256], line[64];
  int removes = below(3) == 0;
  snprintf(path, sizeof path, "%s/x%d", dir, n);
  snprintf(other, sizeof other, "%s/new%d", dir, n);
  snprintf(line, sizeof line, "i x%d %llu\n", n, (unsigned long long)number);
  if (removes) {
    say(line);
    if (unlink(path) && errno != ENOENT) fail("unlink");
  } else {
    int fd = open(other, O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (fd < 0) fail("create");
    write_record(fd, 200000 + n, 0, number);
    if (close(fd) || rename(other, path)) fail("rename");
  }
  snprintf(line, sizeof line, "%c x%d %llu\n", removes ? 'a' : 'p', n, (unsigned long long)number);
  say(line);
}

static void replace_name(const char *dir, int n, uint64_t number) {
  char path[256], other[256], line[64];
  snprintf(path, sizeof path, "%s/n%d", dir, n);
  snprintf(line, sizeof line, "i n%d %llu\n", n, (unsigned long long)number);
  say(line);
  if (below(3) == 0) {
    if (unlink(path) && errno != ENOENT) fail("unlink");
    sync_directory(dir);
    snprintf(line, sizeof line, "u n%d %llu\n", n, (unsigned long long)number);
  } else {
    int renamed = below(2);
    snprintf(other, sizeof other, renamed ? "%s/tmp%d" : "%s/n%d", dir, n);
    int fd = open(other, O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (fd < 0) fail("create");
    write_record(fd, 100000 + n, 0, number);
    if (fsync(fd) || close(fd)) fail("fsync");
    if (renamed && rename(other, path)) fail("rename");
    sync_directory(dir);
    snprintf(line, sizeof line, "c n%d %llu\n", n, (unsigned long long)number);
  }
  say(line);
}

// docs/window.md, the ioctl.
struct forebay_window {
  uint32_t size, command;
  uint64_t bytes, token;
  uint32_t state, version;
};
enum { GET = 0, HAS = 2, DURABLE = 4 };

static int is_durable_as_it_is(int fd) {
  struct forebay_window window = {.size = sizeof window, .command = GET, .version = 1};
  return ioctl(fd, _IOWR(0xFB, 1, struct forebay_window), &window) == 0 && (window.state & HAS) && (window.state & DURABLE);
}

// What to say of it.
static const char *make_durable(int fd) {
  if (is_durable_as_it_is(fd)) return " window";
  if (fsync(fd)) fail("fsync");
  return "";
}

static void write_records(const char *dir, uint64_t number, long operations) {
  int fd[FILES];
  char path[256], line[64];
  // A window comes with the third write.
  int has_names = getenv("LEDGER_NAMES") != NULL;
  uint32_t close_one_of = getenv("FOREBAY_WINDOW_SOCKET") ? 12 : 4;
  for (int f = 0; f < FILES; f++) fd[f] = -1;
  say("b\n");
  for (; operations != 0; operations--) {
    int f = below(FILES), what = below(20);
    number++;
    if (has_names && what >= 10) {
      change_later(dir, below(NAMES), number);
      continue;
    }
    if (what < 5) {
      replace_name(dir, below(NAMES), number);
      continue;
    }
    snprintf(path, sizeof path, "%s/f%d", dir, f);
    if (fd[f] < 0 && (fd[f] = open(path, O_WRONLY | O_CREAT, 0644)) < 0) fail("open");
    if (what == 5) {
      snprintf(line, sizeof line, "i t%d %llu\n", f, (unsigned long long)number);
      say(line);
      if (ftruncate(fd[f], 0)) fail("truncate");
      snprintf(line, sizeof line, "t %d %llu%s\n", f, (unsigned long long)number, make_durable(fd[f]));
    } else {
      int slot = below(SLOTS);
      write_record(fd[f], f * SLOTS + slot, (off_t)slot * RECORD, number);
      const char *how = make_durable(fd[f]);
      snprintf(line, sizeof line, "w %d %d %llu%s\n", f, slot, (unsigned long long)number, how);
    }
    say(line);
    if (below(close_one_of) == 0) { // the stage-out begins
      close(fd[f]);
      fd[f] = -1;
    }
  }
}

int main(int count, char **arguments) {
  struct state s = {0};
  if (count < 4) return 2;
  setvbuf(stdout, NULL, _IOLBF, 0);
  remember(&s, arguments[3]);
  if (strcmp(arguments[1], "verify") == 0) return verify(arguments[2], &s);
  if (count < 5 || (ledger_fd = open(arguments[4], O_WRONLY | O_CREAT | O_APPEND | O_NOCTTY, 0644)) < 0) return 2;
  struct termios raw;
  if (tcgetattr(ledger_fd, &raw) == 0) {
    cfmakeraw(&raw);
    tcsetattr(ledger_fd, TCSANOW, &raw);
  }
  random_state = s.last * 2654435761u + (uint64_t)getpid();
  // Beyond any number that was used and not told. A negative count never ends.
  write_records(arguments[2], s.last + 1000, count > 5 ? atol(arguments[5]) : -1);
  return 0;
}
