# A program that becomes another user loads no library that the environment names: it sees and leaves the same bytes.
made=$(mktemp -d)
cat >"$made/program.c" <<'C'
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int argc, char **argv) {
  char block[8192], got[8192];
  struct stat told;
  printf("user %d, secure %ld\n", geteuid(), getauxval(AT_SECURE));
  int fd = open("by_user", O_RDWR | O_CREAT | O_TRUNC, 0644);
  for (int n = 0; n < 30; n++) {
    memset(block, 'A' + n % 26, sizeof block);
    if (write(fd, block, sizeof block) != sizeof block) return 1;
  }
  if (fstat(fd, &told) || told.st_uid != geteuid()) return 2;
  if (pread(fd, got, sizeof got, 29 * sizeof block) != sizeof got || memcmp(got, block, sizeof got)) return 3;
  close(fd);
  // What a program with the library wrote, and may not be written.
  fd = open("of_root", O_RDONLY);
  printf("%zd bytes\n", read(fd, got, sizeof got));
  printf("%.20s\n", got);
  return open("of_root", O_WRONLY) != -1;
}
C
gcc -O1 -o "$made/program" "$made/program.c" && chown 1234 "$made/program" && chmod 4755 "$made/program"
chmod 755 "$made" && chmod 777 .
head -c 100000 "$INPUT/random" | base64 | head -c 5000 >of_root
"$made/program"
echo "status $?"
stat -c '%n %s %u' by_user of_root
# Overwritten by root, with the library.
dd if="$INPUT/random" of=by_user bs=9000 count=11 conv=notrunc status=none
"$made/program"
chmod 755 .
rm -rf "$made"
