/* What any window can give beyond its size, at most: one thread copies writes of BYTES into a ring of RING bytes in DIR, and another one
 * writes them from there to a new file in FILES, 256 KiB at a time; nothing else: no checksum, no journal, nobody to share with. Bytes a
 * second of TOTAL, until all is in the ring, and until it is synced and closed as well: two_copies DIR FILES BYTES RING TOTAL. What was
 * written is compared afterwards. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "measure.h"

enum { PIECE = 256 << 10 };

static char *ring;
static size_t size, total;
static int file;
/* Bytes that are in the ring, and that are in the file. */
static _Atomic size_t filled, drained;

/* Both sides look now and then, as the one that waits would be woken. */
static void wait_for(_Atomic size_t *count, size_t least) {
	while (atomic_load(count) < least) usleep(20);
}

static void *drain(void *unused) {
	(void)unused;
	for (size_t at = 0; at < total; at += PIECE) {
		wait_for(&filled, at + PIECE);
		must(pwrite(file, ring + at % size, PIECE, (off_t)at) == PIECE, "pwrite");
		atomic_store(&drained, at + PIECE);
	}
	return NULL;
}

int main(int count, char **words) {
	must(count == 6, "usage: two_copies DIR FILES BYTES RING TOTAL");
	size_t bytes = strtoul(words[3], NULL, 10);
	char path[4096];
	size = strtoul(words[4], NULL, 10), total = strtoul(words[5], NULL, 10);
	must(size % PIECE == 0 && size % bytes == 0 && total % PIECE == 0 && total % bytes == 0, "sizes");
	snprintf(path, sizeof path, "%s/ring", words[1]);
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	must(fd >= 0 && ftruncate(fd, (off_t)size) == 0 && unlink(path) == 0, path);
	ring = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	must(ring != MAP_FAILED, "mmap");
	char *block = malloc(bytes), *got = malloc(bytes);
	memset(block, 'x', bytes);
	snprintf(path, sizeof path, "%s/two_copies", words[2]);
	double began = now();
	file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
	must(file >= 0, path);
	pthread_t thread;
	must(pthread_create(&thread, NULL, drain, NULL) == 0, "pthread_create");
	for (size_t at = 0; at < total; at += bytes) {
		if (at + bytes > size) wait_for(&drained, at + bytes - size);
		memcpy(block, &at, sizeof at);
		memcpy(ring + at % size, block, bytes);
		atomic_store(&filled, at + bytes);
	}
	double written = now() - began;
	must(pthread_join(thread, NULL) == 0 && fsync(file) == 0 && close(file) == 0, "fsync");
	double all = now() - began;
	must((file = open(path, O_RDONLY)) >= 0, path);
	for (size_t at = 0; at < total; at += bytes) {
		memcpy(block, &at, sizeof at);
		must(pread(file, got, bytes, (off_t)at) == (ssize_t)bytes && !memcmp(got, block, bytes), "other bytes");
	}
	printf("%.1f %.1f\n", (double)total / written, (double)total / all);
	return 0;
}
