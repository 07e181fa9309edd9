#include "probe.h"

// The kernel moves the bytes, by the descriptor's own offset or by a given one.
int main(void) {
  char block[10000];
  int from = scratch("from"), to = scratch("to"), pipes[2];
  off_t at = 100, there = 20;
  TELL(write(from, pattern(block, sizeof block, 7), sizeof block));
  TELL(write(to, "before", 6));
  TELL(lseek(from, 1000, SEEK_SET));
  TELL(copy_file_range(from, NULL, to, NULL, 500, 0));
  TELL(lseek(from, 0, SEEK_CUR));
  TELL(write(to, "|", 1));
  TELL(copy_file_range(from, &at, to, &there, 50, 0));
  TELL(at + there);
  TELL(sendfile(to, from, NULL, 300));
  TELL(lseek(to, 0, SEEK_CUR));
  TELL(write(to, "|", 1));
  at = 4000;
  TELL(sendfile64(to, from, &at, 100));
  TELL(at);
  TELL(pipe(pipes));
  TELL(splice(from, NULL, pipes[1], NULL, 200, 0));
  TELL(splice(pipes[0], NULL, to, NULL, 200, 0));
  TELL(write(to, "|", 1));
  TELL(write(from, "X", 1));
  TELL(lseek(from, 0, SEEK_CUR));
  tell_file("from");
  tell_file("to");
}
