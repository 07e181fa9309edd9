#include "probe.h"

int main(void) {
  char block[30000];
  FILE *stream = fopen("file", "w+");
  for (int n = 0; n < 2000; n++) fprintf(stream, "line %d of many\n", n);
  TELL(fflush(stream));
  TELL(ftell(stream));
  tell_size("file");
  TELL(write(fileno(stream), "raw\n", 4));
  TELL(fseek(stream, 10, SEEK_SET));
  TELL(fwrite(pattern(block, sizeof block, 8), 1, sizeof block, stream));
  TELL(fseek(stream, 5, SEEK_SET));
  TELL(fread(block, 1, 100, stream));
  tell_bytes("fread", block, 100);
  TELL(fclose(stream));
  tell_file("file");
  int fd = open("file", O_RDWR);
  TELL(write(fd, "by descriptor", 13));
  stream = fdopen(fd, "r+");
  TELL(ftell(stream));
  TELL(fprintf(stream, "by stream"));
  TELL(fflush(stream));
  TELL(write(fd, "again", 5));
  TELL(fclose(stream));
  TELL(write(fd, "x", 1));
  TELL(fopen("none", "r") == NULL);
  TELL(fopen("file", "q") == NULL);
  TELL(fclose(fopen64("file", "a")));
  stream = freopen("second", "w", fopen("file", "r"));
  TELL(fputs("second", stream) >= 0);
  TELL(fclose(stream));
  tell_file("file");
  tell_file("second");
}
