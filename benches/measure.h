/* What the programs here share. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Microseconds. */
static inline double now(void) {
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

static inline int ascending(const void *a, const void *b) {
	return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static inline double median(double *values, size_t count) {
	qsort(values, count, sizeof *values, ascending);
	return values[count / 2];
}

static inline void must(int holds, const char *what) {
	if (!holds) {
		perror(what);
		exit(1);
	}
}
