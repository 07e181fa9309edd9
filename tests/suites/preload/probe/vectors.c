#include "probe.h"

int main(void) {
  char a[300], b[5000], c[10], got[6000];
  memset(got, 0, sizeof got);
  struct iovec out[3] = {{pattern(a, 300, 1), 300}, {pattern(b, 5000, 2), 5000}, {pattern(c, 10, 3), 10}};
  struct iovec in[2] = {{got, 1000}, {got + 1000, 5000}};
  struct iovec bad[1] = {{(void *)8, 100}};
  int fd = scratch("file");
  TELL(writev(fd, out, 3));
  TELL(writev(fd, out, 0));
  TELL(writev(fd, out, -1));
  TELL(writev(fd, out, 100000));
  TELL(writev(fd, bad, 1));
  TELL(lseek(fd, 0, SEEK_CUR));
  TELL(lseek(fd, 100, SEEK_SET));
  TELL(readv(fd, in, 2));
  tell_bytes("readv", got, sizeof got);
  TELL(pwritev(fd, out, 2, 10000));
  TELL(preadv(fd, in, 2, 9900));
  tell_bytes("preadv", got, sizeof got);
  TELL(preadv(fd, in, 2, -1));
  TELL(pwritev2(fd, out, 3, 3, 0));
  TELL(pwritev2(fd, out, 1, -1, 0));
  TELL(lseek(fd, 0, SEEK_CUR));
  TELL(preadv2(fd, in, 1, -1, 0));
  TELL(lseek(fd, 0, SEEK_CUR));
  TELL(pwritev2(fd, out, 1, 0, 0x40000000));
  TELL(pwritev2(fd, out, 1, 0, RWF_APPEND));
  TELL(pwritev2(fd, out, 1, 5, RWF_DSYNC));
  tell_size("file");
  tell_file("file");
  int many = scratch("many");
  for (int n = 0; n < 10; n++) TELL(pwritev(many, out, 1, n * 300));
  TELL(pwritev2(many, out, 1, 0, RWF_APPEND));
  TELL(lseek(many, 0, SEEK_CUR));
  tell_size("many");
  tell_file("many");
}
