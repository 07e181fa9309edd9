/* An empty FUSE server, the least that an operation can cost: empty_fuse DIR BACKING [FILES]
 * With FILES, a directory, each file that is created has a file of its own there, which is made, opened and removed with it:
 * the least that a server can cost that keeps each file's data in a local file. Without:
 * Files 0 to 999 of 4096 bytes, and every file that is created, which has 3901. All are passed through to BACKING. The
 * directory `many` lists 100,000 names, others none. One thread reads, answers from constants, and keeps no state but the last node number; it
 * stays on its caller's processor, as Forebay's does. The kernel makes the calls that Forebay gets. Ends with the
 * mount. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
#include <linux/fuse.h>

/* Of Linux 6.9, which the distribution's headers may not know. */
#define PASSTHROUGH_OPEN (1u << 7)
#define INIT_EXT_FLAG (1u << 30)
#define PASSTHROUGH_FLAG2 (1u << 5)
struct backing {
	int32_t fd;
	uint32_t flags;
	uint64_t padding;
};
#define BACKING_OPEN _IOW(229, 1, struct backing)
#define BACKING_CLOSE _IOW(229, 2, uint32_t)

static int device, file, files = -1;
static int32_t backing_id;
static uint64_t last;
static char message[1 << 17];

/* Node numbers: the root, the files 0 to 999, files that are created, directories. */
enum { ROOT = 1, FIRST = 2, CREATED = 1 << 20, CREATED_MAX = 1 << 20 };
static const uint64_t DIRECTORY = 1ull << 40, MANY = 1ull << 41;
enum { LISTED = 100000 };

/* Files that were created, with names of their own in FILES, by their node numbers. */
static struct created {
	char name[48];
	uint32_t id;
} created[CREATED_MAX];

static void must(int holds, const char *what) {
	if (!holds) {
		perror(what);
		exit(1);
	}
}

static void answer(uint64_t unique, int error, const void *body, size_t size) {
	struct fuse_out_header header = {sizeof header + size, error, unique};
	struct iovec parts[2] = {{&header, sizeof header}, {(void *)body, size}};
	/* Whoever asked may be gone. */
	ssize_t sent = writev(device, parts, 2);
	(void)sent;
}

static struct fuse_attr attributes(uint64_t node) {
	struct fuse_attr attr = {.ino = node, .nlink = 1, .blksize = 4096};
	attr.size = node < CREATED ? 4096 : 3901;
	attr.mode = node == ROOT || (node >= DIRECTORY && node <= MANY) ? S_IFDIR | 0755 : S_IFREG | 0644;
	return attr;
}

static struct fuse_entry_out entry(uint64_t node) {
	return (struct fuse_entry_out){.nodeid = node, .entry_valid = 3600, .attr_valid = 3600, .attr = attributes(node)};
}

/* The node of a name that is there from the beginning; 0 for another. */
static uint64_t named(uint64_t parent, const char *name) {
	if (parent != ROOT)
		return 0;
	if (strcmp(name, "many") == 0)
		return MANY;
	return name[0] >= '0' && name[0] <= '9' ? FIRST + strtoul(name, NULL, 10) : 0;
}

static const char *local_name(uint64_t parent, const char *name) {
	static char local[48];
	snprintf(local, sizeof local, "%llx-%.24s", (unsigned long long)parent, name);
	return local;
}

/* Opens the local file of a node. Returns the kernel's number of it. */
static uint32_t open_local(uint64_t node, int flags) {
	if (files < 0 || node < CREATED)
		return backing_id;
	must(node - CREATED < CREATED_MAX, "few files");
	struct created *of = &created[node - CREATED];
	struct backing backing = {.fd = openat(files, of->name, O_RDWR | O_CLOEXEC | flags, 0600)};
	must(backing.fd >= 0, of->name);
	of->id = ioctl(device, BACKING_OPEN, &backing);
	must((int)of->id > 0 && close(backing.fd) == 0, of->name);
	return of->id;
}

static void close_local(uint64_t node) {
	if (files >= 0 && node >= CREATED && node - CREATED < CREATED_MAX)
		ioctl(device, BACKING_CLOSE, &created[node - CREATED].id);
}

static void initialise(const struct fuse_in_header *in) {
	const struct fuse_init_in *offer = (const void *)(in + 1);
	const uint32_t like_ours = FUSE_HANDLE_KILLPRIV_V2 | FUSE_DO_READDIRPLUS | FUSE_READDIRPLUS_AUTO | FUSE_PARALLEL_DIROPS;
	uint32_t out[16] = {offer->major, offer->minor, offer->max_readahead, INIT_EXT_FLAG | like_ours};
	out[4] = 64 | 48 << 16; /* requests in the background, and when they are congested */
	out[5] = 65536;         /* bytes of a write */
	out[8] = PASSTHROUGH_FLAG2;
	out[9] = 1; /* stacked file systems */
	answer(in->unique, 0, out, sizeof out);
	struct backing backing = {.fd = file};
	backing_id = ioctl(device, BACKING_OPEN, &backing);
	must(backing_id > 0, "the backing file");
}

/* Looked up now and then; the 39th field of /proc/PID/stat. */
static void stay_beside(uint32_t caller) {
	static unsigned requests;
	char name[40], line[1024];
	if (caller == 0 || requests++ % 256)
		return;
	snprintf(name, sizeof name, "/proc/%u/stat", caller);
	int stat = open(name, O_RDONLY);
	ssize_t got = stat < 0 ? -1 : read(stat, line, sizeof line - 1);
	if (stat >= 0)
		close(stat);
	if (got <= 0)
		return;
	line[got] = 0;
	char *at = strrchr(line, ')');
	for (int field = 2; at && field < 39; field++)
		at = strchr(at + 1, ' ');
	cpu_set_t only;
	CPU_ZERO(&only);
	if (at)
		CPU_SET(atoi(at), &only);
	sched_setaffinity(0, sizeof only, &only);
}

/* Names of 16 bytes, each with attributes. */
static void list(const struct fuse_in_header *in) {
	static char out[1 << 17];
	const struct fuse_read_in *read = (const void *)(in + 1);
	uint32_t size = 0, room = read->size < sizeof out ? read->size : sizeof out;
	const uint32_t each = FUSE_DIRENTPLUS_SIZE((&(struct fuse_direntplus){.dirent.namelen = 16}));
	for (uint64_t at = read->offset; at < LISTED && size + each <= room; at++, size += each) {
		struct fuse_direntplus *plus = (void *)(out + size);
		char name[17];
		snprintf(name, sizeof name, "%016llu", (unsigned long long)at);
		plus->entry_out = entry(MANY + 1 + at);
		plus->dirent = (struct fuse_dirent){.ino = MANY + 1 + at, .off = at + 1, .namelen = 16, .type = S_IFREG >> 12};
		memcpy(plus->dirent.name, name, 16);
	}
	answer(in->unique, 0, out, size);
}

static void serve(const struct fuse_in_header *in) {
	const void *arguments = in + 1;
	switch (in->opcode) {
	case FUSE_INIT:
		initialise(in);
		break;
	case FUSE_LOOKUP: {
		struct fuse_entry_out out = entry(named(in->nodeid, arguments));
		answer(in->unique, out.nodeid ? 0 : -ENOENT, &out, out.nodeid ? sizeof out : 0);
		break;
	}
	case FUSE_MKDIR: {
		struct fuse_entry_out out = entry(DIRECTORY + ++last);
		answer(in->unique, 0, &out, sizeof out);
		break;
	}
	case FUSE_CREATE: {
		struct {
			struct fuse_entry_out entry;
			uint32_t open[4];
		} out = {entry(CREATED + ++last), {1, 0, PASSTHROUGH_OPEN, backing_id}};
		if (files >= 0) {
			const char *name = (const char *)arguments + sizeof(struct fuse_create_in);
			strcpy(created[last].name, local_name(in->nodeid, name));
			out.open[3] = open_local(CREATED + last, O_CREAT | O_EXCL);
		}
		answer(in->unique, 0, &out, sizeof out);
		break;
	}
	case FUSE_READDIRPLUS:
		if (in->nodeid == MANY)
			list(in);
		else
			answer(in->unique, 0, NULL, 0);
		break;
	case FUSE_OPENDIR: {
		struct fuse_open_out out = {.fh = 1};
		answer(in->unique, 0, &out, sizeof out);
		break;
	}
	case FUSE_GETXATTR:
		answer(in->unique, -ENODATA, NULL, 0);
		break;
	case FUSE_GETATTR: {
		struct fuse_attr_out out = {.attr_valid = 3600, .attr = attributes(in->nodeid)};
		answer(in->unique, 0, &out, sizeof out);
		break;
	}
	case FUSE_OPEN: {
		uint32_t out[4] = {1, 0, PASSTHROUGH_OPEN, open_local(in->nodeid, 0)};
		answer(in->unique, 0, out, sizeof out);
		break;
	}
	case FUSE_RELEASE:
		close_local(in->nodeid);
		answer(in->unique, 0, NULL, 0);
		break;
	case FUSE_UNLINK:
		if (files >= 0)
			unlinkat(files, local_name(in->nodeid, arguments), 0);
		answer(in->unique, 0, NULL, 0);
		break;
	case FUSE_FLUSH:
	case FUSE_RELEASEDIR:
	case FUSE_RMDIR:
	case FUSE_READDIR:
		answer(in->unique, 0, NULL, 0);
		break;
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
		break;
	default:
		answer(in->unique, -ENOSYS, NULL, 0);
	}
}

int main(int count, char **words) {
	must(count == 3 || count == 4, "usage: empty_fuse DIR BACKING [FILES]");
	if (count == 4) {
		files = open(words[3], O_RDONLY | O_DIRECTORY);
		must(files >= 0, words[3]);
	}
	file = open(words[2], O_RDWR | O_CREAT, 0600);
	must(file >= 0 && ftruncate(file, 4096) == 0, words[2]);
	device = open("/dev/fuse", O_RDWR);
	char options[120];
	snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other", device);
	must(device >= 0 && mount("empty", words[1], "fuse", 0, options) == 0, words[1]);
	/* As Forebay's reader beside an idle processor: the caller stays where it is. */
	struct sched_param modest = {.sched_priority = 0};
	must(sched_setscheduler(0, SCHED_IDLE, &modest) == 0, "SCHED_IDLE");
	for (;;) {
		ssize_t got = read(device, message, sizeof message);
		if (got < 0 && errno == ENODEV)
			return 0;
		if (got <= 0)
			continue;
		stay_beside(((const struct fuse_in_header *)message)->pid);
		serve((const void *)message);
	}
}
