#include "probe.h"
#include <pthread.h>

enum { THREADS = 4, WRITES = 200, BYTES = 100 };
static int file;

static void *writer(void *number) {
  char block[BYTES];
  memset(block, 'a' + (int)(intptr_t)number, sizeof block);
  for (int n = 0; n < WRITES; n++)
    if (write(file, block, sizeof block) != sizeof block) _exit(1);
  return NULL;
}

// Writes at one shared offset: none is lost, none is torn.
int main(void) {
  pthread_t threads[THREADS];
  static char all[THREADS * WRITES * BYTES];
  int counts[THREADS] = {0}, torn = 0;
  file = scratch("file");
  for (intptr_t n = 0; n < THREADS; n++) pthread_create(&threads[n], NULL, writer, (void *)n);
  for (int n = 0; n < THREADS; n++) pthread_join(threads[n], NULL);
  TELL(lseek(file, 0, SEEK_CUR));
  TELL(pread(file, all, sizeof all, 0));
  for (size_t n = 0; n < sizeof all; n += BYTES) {
    int which = all[n] - 'a';
    if (which < 0 || which >= THREADS) torn++;
    else counts[which]++;
    for (size_t m = 0; m < BYTES; m++) torn += all[n + m] != all[n];
  }
  TELL(torn);
  for (int n = 0; n < THREADS; n++) TELL(counts[n]);
}
