#include "probe.h"
#include <pthread.h>

static int pipes[2], file;
static volatile int cleaned, begun;

static void clean(void *argument) {
  (void)argument;
  cleaned = 1;
}

static void *waits(void *argument) {
  char byte;
  pthread_cleanup_push(clean, NULL);
  begun = 1;
  if (read(pipes[0], &byte, 1) != 1) _exit(1);
  pthread_cleanup_pop(0);
  return argument;
}

static void *writes(void *argument) {
  pthread_cleanup_push(clean, NULL);
  for (;; begun = 1)
    if (pwrite(file, "x", 1, 0) != 1) _exit(1);
  pthread_cleanup_pop(0);
  return argument;
}

// A thread is cancelled in a call that waits, and in one that does not.
int main(void) {
  pthread_t thread;
  void *result;
  TELL(pipe(pipes));
  file = scratch("file");
  void *(*stories[])(void *) = {waits, writes};
  for (int n = 0; n < 2; n++) {
    cleaned = begun = 0;
    pthread_create(&thread, NULL, stories[n], NULL);
    while (!begun) usleep(1000);
    TELL(pthread_cancel(thread));
    TELL(pthread_join(thread, &result));
    TELL(result == PTHREAD_CANCELED);
    TELL(cleaned);
  }
  tell_file("file");
}
