/* Rates of small files, in operations a second of all processes together: small_files DIR FILES PROCESSES LETTER...
 *   d  make the directory   c  create, write 3901 bytes, close   s  stat   o  open, read 3901 bytes, close   u  unlink
 * Each process has FILES files in a directory of its own, DIR/pNUMBER, which `d` makes. One line a letter. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "measure.h"

enum { BYTES = 3901 };
static char block[BYTES];

static void open_and(const char *name, int flags) {
	int fd = open(name, flags, 0644);
	must(fd >= 0, name);
	ssize_t done = flags & O_CREAT ? write(fd, block, BYTES) : read(fd, block, BYTES);
	must(done == BYTES && close(fd) == 0, name);
}

static void touch(char operation, const char *name) {
	struct stat status;
	switch (operation) {
	case 'c':
		open_and(name, O_WRONLY | O_CREAT | O_EXCL);
		break;
	case 'o':
		open_and(name, O_RDONLY);
		break;
	case 's':
		must(stat(name, &status) == 0, name);
		break;
	case 'u':
		must(unlink(name) == 0, name);
	}
}

static void work(char operation, const char *top, int process, long files) {
	char name[32];
	snprintf(name, sizeof name, "p%d", process);
	must(chdir(top) == 0, top);
	if (operation == 'd') {
		must(mkdir(name, 0755) == 0, name);
		return;
	}
	must(chdir(name) == 0, name);
	for (long n = 0; n < files; n++) {
		snprintf(name, sizeof name, "f%06ld", n);
		touch(operation, name);
	}
}

int main(int count, char **words) {
	must(count == 5, "usage: small_files DIR FILES PROCESSES LETTER...");
	long files = atol(words[2]);
	int processes = atoi(words[3]);
	memset(block, 'x', BYTES);
	for (const char *operation = words[4]; *operation; operation++) {
		double began = now();
		for (int process = 0; process < processes; process++) {
			pid_t child = fork();
			must(child >= 0, "fork");
			if (child == 0) {
				work(*operation, words[1], process, files);
				exit(0);
			}
		}
		int status, failed = 0;
		while (wait(&status) > 0) failed |= status;
		if (failed) return 1;
		long each = *operation == 'd' ? 1 : files;
		printf("%.1f\n", (double)(each * processes) / (now() - began) * 1e6);
		fflush(stdout);
	}
	return 0;
}
