/* Bytes a second of PROCESSES that write TOTAL bytes together, each in transfers of BYTES, until all is written, and until it is synced
 * and closed as well: streams DIR shared|own BYTES PROCESSES TOTAL. `shared`: into one file, DIR/shared, which is there, turn about;
 * `own`: into a new file each. What was written is compared afterwards. */
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "measure.h"

struct job {
	const char *dir;
	int shared, number, processes;
	size_t bytes, times;
};

static off_t at(const struct job *job, size_t n) {
	return (off_t)(job->shared ? n * (size_t)job->processes + (size_t)job->number : n) * (off_t)job->bytes;
}

static int open_of(const struct job *job, int flags) {
	char path[4096];
	if (job->shared) snprintf(path, sizeof path, "%s/shared", job->dir);
	else snprintf(path, sizeof path, "%s/own.%d", job->dir, job->number);
	int fd = open(path, flags, 0644);
	must(fd >= 0, path);
	return fd;
}

static void fill(const struct job *job, size_t n, char *block) {
	size_t mark[2] = {n, (size_t)job->number};
	memcpy(block, mark, sizeof mark);
}

/* Microseconds until the last write. */
static double write_all(const struct job *job, char *block) {
	double began = now();
	int fd = open_of(job, O_WRONLY | (job->shared ? 0 : O_CREAT | O_TRUNC));
	for (size_t n = 0; n < job->times; n++) {
		fill(job, n, block);
		must(pwrite(fd, block, job->bytes, at(job, n)) == (ssize_t)job->bytes, "pwrite");
	}
	double took = now() - began;
	must(fsync(fd) == 0 && close(fd) == 0, "fsync");
	return took;
}

static void compare(const struct job *job, char *block) {
	char *got = malloc(job->bytes);
	int fd = open_of(job, O_RDONLY);
	for (size_t n = 0; n < job->times; n++) {
		fill(job, n, block);
		must(pread(fd, got, job->bytes, at(job, n)) == (ssize_t)job->bytes && !memcmp(got, block, job->bytes), "other bytes");
	}
	close(fd);
}

int main(int count, char **words) {
	must(count == 6, "usage: streams DIR shared|own BYTES PROCESSES TOTAL");
	struct job job = {.dir = words[1], .shared = !strcmp(words[2], "shared"), .processes = atoi(words[4])};
	job.bytes = strtoul(words[3], NULL, 10);
	job.times = strtoul(words[5], NULL, 10) / job.bytes / (size_t)job.processes;
	char *block = malloc(job.bytes);
	memset(block, 'x', job.bytes);
	int told[2];
	must(pipe(told) == 0, "pipe");
	double began = now(), written = 0, one;
	for (; job.number < job.processes; job.number++) {
		if (fork() == 0) {
			one = write_all(&job, block);
			must(write(told[1], &one, sizeof one) == sizeof one, "write");
			_exit(0);
		}
	}
	for (int n = 0, status; n < job.processes; n++) {
		must(wait(&status) > 0 && status == 0, "a writer");
		must(read(told[0], &one, sizeof one) == sizeof one, "read");
		if (one > written) written = one;
	}
	double all = now() - began, total = (double)(job.bytes * job.times) * job.processes;
	for (job.number = 0; job.number < job.processes; job.number++) compare(&job, block);
	printf("%.1f %.1f\n", total / written, total / all);
	return 0;
}
