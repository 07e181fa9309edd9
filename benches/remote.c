/* Programs of the first paper's experiments, each process with a file of its own:
 *
 *   remote write|read|random-write|random-read|frames DIRECTORY PROCESSES REQUEST-BYTES REQUESTS FILE-BYTES sync|lazy
 *
 * Prints MB/s of all together, from the first open to the last close; of frames what their output took, without the
 * computation between them. Each request carries its place, and readers check it. sync: fsync before close. */
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "measure.h"

#define FRAME_REQUESTS 70
#define FRAME_COMPUTES_US 200000

static uint64_t place(int process, uint64_t number, uint64_t places, int scattered) {
	if (!scattered)
		return number % places;
	uint64_t x = (number + 1) * 0x9e3779b97f4a7c15u + (uint64_t)process * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return (x ^ (x >> 31)) % places;
}

/* Microseconds that it took; of frames: that its output took. */
static double work(const char *mode, const char *directory, int process, size_t bytes, uint64_t requests, uint64_t file, int sync) {
	char path[4096];
	snprintf(path, sizeof path, "%s/%d", directory, process);
	int reads = strstr(mode, "read") != NULL, scattered = strncmp(mode, "random", 6) == 0, frames = strcmp(mode, "frames") == 0;
	uint64_t *buffer = aligned_alloc(4096, bytes), places = file / bytes;
	memset(buffer, process + 1, bytes);
	double begin = now(), computed = 0;
	int fd = open(path, reads ? O_RDONLY : O_WRONLY | O_CREAT, 0644);
	must(fd >= 0, path);
	for (uint64_t number = 0; number < requests; number++) {
		uint64_t at = place(process, number, places, scattered);
		if (reads) {
			must(pread(fd, buffer, bytes, (off_t)(at * bytes)) == (ssize_t)bytes, "read");
			must(buffer[0] == at, "other bytes");
		} else {
			buffer[0] = at;
			must(pwrite(fd, buffer, bytes, (off_t)(at * bytes)) == (ssize_t)bytes, "write");
		}
		if (frames && number % FRAME_REQUESTS == FRAME_REQUESTS - 1) {
			double since = now();
			usleep(FRAME_COMPUTES_US);
			computed += now() - since;
		}
	}
	if (sync)
		must(fsync(fd) == 0, "fsync");
	must(close(fd) == 0, "close");
	return now() - begin - computed;
}

int main(int count, char **words) {
	if (count != 8)
		return 64;
	int processes = atoi(words[3]), sync = strcmp(words[7], "sync") == 0;
	size_t bytes = strtoull(words[4], NULL, 10);
	uint64_t requests = strtoull(words[5], NULL, 10), file = strtoull(words[6], NULL, 10);
	double *took = mmap(NULL, sizeof(double) * (size_t)processes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	double begin = now();
	for (int process = 0; process < processes; process++)
		if (fork() == 0) {
			took[process] = work(words[1], words[2], process, bytes, requests, file, sync);
			_exit(0);
		}
	int status, failed = 0;
	while (wait(&status) > 0)
		failed |= status;
	must(!failed, "a process");
	double all = strcmp(words[1], "frames") == 0 ? took[0] : now() - begin;
	printf("%.2f\n", (double)bytes * (double)requests * processes / all);
	return 0;
}
