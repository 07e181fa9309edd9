/* How much of what streams were given is in their files before they are flushed: streams. One figure for each way to open one, in bytes;
 * at the end whether all files hold all that was written. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINES = 2000, BYTES = LINES * 10, MANY = 70 };

static int right = 1;

static FILE *opened(const char *name, const char *mode) {
	FILE *stream = fopen(name, mode);
	if (!stream) perror(name), exit(1);
	return stream;
}

static void fill(FILE *stream) {
	for (int n = 0; n < LINES; n++) fprintf(stream, "line %04d\n", n);
}

static long size_of(const char *name) {
	struct stat found;
	return stat(name, &found) == 0 ? (long)found.st_size : -1;
}

/* From `at` on there is what `fill` writes. */
static void compare(const char *name, long at) {
	char line[16], want[16];
	FILE *stream = opened(name, "r");
	fseek(stream, at, SEEK_SET);
	for (int n = 0; n < LINES; n++) {
		snprintf(want, sizeof want, "line %04d\n", n);
		if (!fgets(line, sizeof line, stream) || strcmp(line, want)) right = 0;
	}
	if (fgetc(stream) != EOF) right = 0;
	fclose(stream);
}

/* Pages of this process's addresses. */
static long pages(void) {
	long count = 0;
	FILE *stream = opened("/proc/self/statm", "r");
	if (fscanf(stream, "%ld", &count) != 1) right = 0;
	fclose(stream);
	return count;
}

static void story(const char *mode, long at) {
	FILE *stream = opened("file", mode);
	fill(stream);
	printf("%ld ", size_of("file") - at);
	if (fclose(stream)) right = 0;
	compare("file", at);
}

int main(void) {
	char name[32];
	FILE *streams[MANY];
	story("w", 0);
	story("w+", 0);
	story("a", BYTES);
	FILE *stream = opened("file", "w");
	setvbuf(stream, NULL, _IONBF, 0);
	fill(stream);
	printf("%ld ", size_of("file"));
	fclose(stream);
	/* Another file in the same stream, whose buffer it keeps or not. */
	stream = freopen("other", "w", opened("file", "w"));
	fill(stream);
	fclose(stream);
	compare("other", 0);
	/* More than there is room for, each closed and opened again. */
	int larger = 0;
	long before = pages();
	for (int round = 0; round < 3; round++) {
		for (int n = 0; n < MANY; n++) {
			snprintf(name, sizeof name, "many.%d", n);
			fill(streams[n] = opened(name, "w"));
			if (round == 2 && size_of(name) == 0) larger++;
		}
		for (int n = 0; n < MANY; n++) {
			snprintf(name, sizeof name, "many.%d", n);
			if (fclose(streams[n])) right = 0;
			compare(name, 0);
		}
	}
	/* With the streams their buffers went, of 1,024 pages together. */
	if (pages() - before > 512) right = 0;
	/* Not ours, and one that is never closed. */
	stream = opened("/dev/null", "w");
	fill(stream);
	fclose(stream);
	fill(opened("left", "w"));
	printf("%d %d\n", larger, right);
	exit(0);
}
