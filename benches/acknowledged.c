/* Time of an acknowledged write while the window has room, in microseconds: acknowledged FILE|- BYTES
 * The median over ROUNDS of rounds of ROUND bytes; between them, not timed, fsync drains the window. `-` is memcpy into
 * warm memory, the limit. */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "measure.h"

enum { ROUNDS = 60, ROUND = 4 << 20, FILE_BYTES = 64 << 20 };

int main(int count, char **words) {
	static double values[ROUNDS];
	must(count == 3, "usage: acknowledged FILE|- BYTES");
	size_t bytes = strtoul(words[2], NULL, 10), times = ROUND / bytes;
	char *block = aligned_alloc(4096, bytes);
	char *memory = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	int copies = !strcmp(words[1], "-");
	int fd = copies ? -1 : open(words[1], O_WRONLY | O_CREAT | O_TRUNC, 0644);
	off_t at = 0;
	must(copies || fd >= 0, words[1]);
	memset(block, 'x', bytes);
	for (int round = -4; round < ROUNDS; round++) {
		double began = now();
		for (size_t n = 0; n < times; n++) {
			block[n % bytes]++;
			if (copies) memcpy(memory + at, block, bytes);
			else must(pwrite(fd, block, bytes, at) == (ssize_t)bytes, "pwrite");
			at = (at + (off_t)bytes) % (FILE_BYTES - (off_t)bytes);
		}
		if (round >= 0) values[round] = (now() - began) / (double)times;
		must(copies || fsync(fd) == 0, "fsync");
	}
	printf("%.3f\n", median(values, ROUNDS));
	return memory[at] == 'q';
}
