#include "probe.h"

int main(void) {
  char block[8192];
  int fd = scratch("file");
  TELL(write(fd, pattern(block, sizeof block, 5), sizeof block));
  TELL(fsync(fd));
  TELL(write(fd, block, 4096));
  TELL(fdatasync(fd));
  TELL(pwrite(fd, block, 4096, 50000));
  TELL(sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE));
  TELL(posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL));
  TELL(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
  TELL(posix_fadvise(fd, 0, 0, 99));
  TELL(fsync(-1));
  TELL(fdatasync(12345));
  TELL(syncfs(fd));
  TELL(syncfs(12345));
  int synced = open("file", O_WRONLY | O_SYNC);
  TELL(write(synced, "sync", 4));
  int dsynced = open("file", O_WRONLY | O_DSYNC);
  TELL(pwrite(dsynced, "dsync", 5, 10));
  tell_file("file");
}
