/* Mean time of one call, in microseconds: calls OPERATION DIR FILES TIMES
 *   create  create, write 4 KiB, close       stat  stat       open  open, read 4 KiB, close
 * Files are named 0 to FILES - 1; each time takes the next one. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "measure.h"

static char block[4096];

static void touch(const char *operation, const char *name) {
	struct stat status;
	if (!strcmp(operation, "stat")) {
		must(stat(name, &status) == 0, name);
		return;
	}
	int create = !strcmp(operation, "create");
	int fd = create ? open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644) : open(name, O_RDONLY);
	must(fd >= 0, name);
	ssize_t done = create ? write(fd, block, sizeof block) : read(fd, block, sizeof block);
	must(done == (ssize_t)sizeof block, name);
	must(close(fd) == 0, name);
}

int main(int count, char **words) {
	must(count == 5 && chdir(words[2]) == 0, "usage: calls OPERATION DIR FILES TIMES");
	long files = atol(words[3]), times = atol(words[4]);
	char name[32];
	double began = now();
	for (long n = 0; n < times; n++) {
		snprintf(name, sizeof name, "%ld", n % files);
		touch(words[1], name);
	}
	printf("%.3f\n", (now() - began) / (double)times);
	return 0;
}
