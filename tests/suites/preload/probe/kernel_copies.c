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
  // After many writes, by the descriptor itself, and by a duplicate.
  for (int by_duplicate = 0; by_duplicate < 2; by_duplicate++) {
    char name[] = "many0";
    name[4] += by_duplicate;
    int many = scratch(name), same = dup(many), use = by_duplicate ? same : many;
    for (int n = 0; n < 10; n++) TELL(write(many, block + n, 5000));
    at = 45000;
    TELL(sendfile(to, use, &at, 100));
    TELL(write(many, block, 5000));
    at = 50000;
    TELL(splice(use, &at, pipes[1], NULL, 200, 0));
    TELL(splice(pipes[0], NULL, to, NULL, 200, 0));
    TELL(pwrite(many, "new", 3, 45010));
    at = 45000;
    TELL(sendfile(to, use, &at, 100));
    TELL(pwrite(many, block, 5000, 55000));
    at = 55000;
    TELL(copy_file_range(use, &at, to, NULL, 300, 0));
    tell_file(name);
  }
  tell_file("to");
}
