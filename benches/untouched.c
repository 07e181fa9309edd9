/* What calls cost that the preload library forwards, in nanoseconds, and the start of a process, in microseconds:
 *   untouched lseek|pread|pwrite|mmap|open FILE     CALLS calls, as fast as the fastest twentieth of BATCHES of them: on a machine that others
 *                                         use medians differ by more than what is looked for
 *   untouched start                       the median over STARTS starts of /bin/true; LD_PRELOAD is theirs too */
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "measure.h"

enum { BATCHES = 400, CALLS = 2000, STARTS = 300 };

/* A call and the one that undoes it. */
static void pair(char which, int fd, const char *path) {
	if (which == 'm') {
		void *at = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
		must(at != MAP_FAILED && munmap(at, 4096) == 0, "mmap");
	} else {
		int other = open(path, O_WRONLY);
		must(other >= 0 && close(other) == 0, "open");
	}
}

static double batch(const char *operation, int fd, const char *path) {
	char byte = 'x';
	double began = now();
	for (int n = 0; n < CALLS; n++) {
		if (operation[0] == 'm' || operation[0] == 'o') pair(operation[0], fd, path);
		else if (operation[0] == 'l') must(lseek(fd, n, SEEK_SET) == n, operation);
		else if (operation[1] == 'r') must(pread(fd, &byte, 1, 0) == 1, operation);
		else must(pwrite(fd, &byte, 1, 0) == 1, operation);
	}
	return (now() - began) * 1000 / CALLS;
}

static double start(void) {
	extern char **environ;
	char *words[] = {"true", NULL};
	pid_t pid;
	double began = now();
	must(posix_spawn(&pid, "/bin/true", NULL, NULL, words, environ) == 0, "posix_spawn");
	must(waitpid(pid, NULL, 0) == pid, "waitpid");
	return now() - began;
}

int main(int count, char **words) {
	static double values[BATCHES > STARTS ? BATCHES : STARTS];
	must(count >= 2, "usage: untouched OPERATION [FILE]");
	int of = count > 2 ? BATCHES : STARTS;
	int fd = count > 2 ? open(words[2], O_RDWR | O_CREAT, 0644) : -1;
	must(count == 2 || pwrite(fd, "x", 1, 0) == 1, "file");
	for (int n = 0; n < of; n++) values[n] = count > 2 ? batch(words[1], fd, words[2]) : start();
	double middle = median(values, (size_t)of);
	printf("%.2f\n", count > 2 ? values[of / 20] : middle);
	return 0;
}
