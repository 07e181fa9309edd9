/* Microseconds of an acknowledged write while the window has room, and of one until it is in the burst buffer and synced there:
 * acknowledged FILE|- BYTES
 * Medians over ROUNDS of rounds of ROUND bytes, each of which ends with an fsync, which drains the window. What is in the file then is
 * compared. `-` is memcpy into warm memory, the limit. */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "measure.h"

enum { ROUNDS = 60, ROUND = 4 << 20, FILE_BYTES = 64 << 20 };

/* Another block each time, and where it goes. */
struct next {
	char *block;
	size_t bytes, n;
	off_t at;
};

static void advance(struct next *next) {
	next->at = (next->at + (off_t)next->bytes) % (FILE_BYTES - (off_t)next->bytes);
	next->n++;
}

static void begin(struct next *next) {
	memset(next->block, 'x', next->bytes);
	next->n = 0, next->at = 0;
}

/* Makes in memory what was written, and compares the file. */
static void compare(const char *file, struct next *next, size_t writes, char *memory) {
	char *there = malloc(FILE_BYTES);
	size_t end = 0;
	for (begin(next); next->n < writes; advance(next)) {
		next->block[next->n % next->bytes]++;
		memcpy(memory + next->at, next->block, next->bytes);
		if ((size_t)next->at + next->bytes > end) end = (size_t)next->at + next->bytes;
	}
	int fd = open(file, O_RDONLY);
	for (size_t at = 0; at < end;) {
		ssize_t got = pread(fd, there + at, end - at, (off_t)at);
		must(got > 0, "pread");
		at += (size_t)got;
	}
	must(!memcmp(there, memory, end), "other bytes");
	close(fd);
	free(there);
}

int main(int count, char **words) {
	static double values[ROUNDS], synced[ROUNDS];
	must(count == 3, "usage: acknowledged FILE|- BYTES");
	size_t bytes = strtoul(words[2], NULL, 10), times = ROUND / bytes;
	struct next next = {.block = aligned_alloc(4096, bytes), .bytes = bytes};
	char *memory = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	int copies = !strcmp(words[1], "-");
	int fd = copies ? -1 : open(words[1], O_WRONLY | O_CREAT | O_TRUNC, 0644);
	must(copies || fd >= 0, words[1]);
	begin(&next);
	for (int round = -4; round < ROUNDS; round++) {
		double began = now();
		for (size_t n = 0; n < times; n++, advance(&next)) {
			next.block[next.n % bytes]++;
			if (copies) memcpy(memory + next.at, next.block, bytes);
			else must(pwrite(fd, next.block, bytes, next.at) == (ssize_t)bytes, "pwrite");
		}
		double acknowledged = now();
		must(copies || fsync(fd) == 0, "fsync");
		if (round < 0) continue;
		values[round] = (acknowledged - began) / (double)times;
		synced[round] = (now() - began) / (double)times;
	}
	if (!copies) compare(words[1], &next, next.n, memory);
	printf("%.3f %.3f\n", median(values, ROUNDS), median(synced, ROUNDS));
	return memory[next.at] == 'q';
}
