/*
 * shim.c
 *		Faults on demand: a library in front of libc and liburing.
 *
 * Loaded into a server with LD_PRELOAD. Which calls fail is said by a file
 * named in PIPEANN_FAULTS, 4096 bytes long and mapped by every process, so
 * that a test can change it at any time:
 *
 *	 bytes 0 .. 2047		rules, one a line, ended by a zero byte
 *	 bytes 2048 .. 2111		of each rule, how many calls it looked at (uint32)
 *	 bytes 2112 .. 2175		of each rule, how many calls it let fail (uint32)
 *
 * A rule is "CALL MATCH ERROR SKIP TIMES PID":
 *
 *	 CALL	read, advise, write, extend, append, resize, shm, ring, reap, malloc
 *	 MATCH	a part of the file's name; for malloc the least size; "-" is any
 *	 ERROR	an errno; 0 makes reads short and writes half done (of one byte,
 *			done), and only counts what cannot be half done
 *	 SKIP	number of calls that succeed first
 *	 TIMES	number of calls that fail then; -1 is all
 *	 PID	in this process only; 0 is any
 *
 * "reap" is a read's completion as liburing hands it over: every read that an
 * index's search has in its ring. "extend" is a write at or past the file's
 * end, "write" any other; "append" is a write that names no offset.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define MAX_RULES 16
#define PAGE 4096
#define LOOKED_AT 2048
#define FAILED 2112

#define REAL(name) \
	static __typeof__(&name) real; \
	if (!real) \
		real = (__typeof__(&name)) dlsym(RTLD_NEXT, #name)

typedef struct Rule
{
	char		call[16];
	char		match[128];
	int			error;
	int			skip;
	int			times;
	int			pid;
} Rule;

extern void *__libc_malloc(size_t size);
extern void *__libc_realloc(void *old, size_t size);

static char *page = NULL;

__attribute__((constructor))
static void
map_faults(void)
{
	const char *path = getenv("PIPEANN_FAULTS");
	int			fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;

	if (fd < 0)
		return;
	page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		page = NULL;
	close(fd);
}

/* Count the call, and say whether it is one of those that are to fail. */
static int
due(const Rule *rule, int number)
{
	unsigned   *looked_at = (unsigned *) (page + LOOKED_AT) + number;
	unsigned   *failed = (unsigned *) (page + FAILED) + number;
	unsigned	n = __atomic_fetch_add(looked_at, 1, __ATOMIC_SEQ_CST);

	if (n < (unsigned) rule->skip ||
		(rule->times >= 0 && n - rule->skip >= (unsigned) rule->times))
		return 0;
	__atomic_fetch_add(failed, 1, __ATOMIC_SEQ_CST);
	return 1;
}

static int
matches(const Rule *rule, const char *name, size_t size)
{
	if (rule->pid != 0 && rule->pid != getpid())
		return 0;
	if (strcmp(rule->match, "-") == 0)
		return 1;
	if (name == NULL)
		return size >= (size_t) atol(rule->match);
	return strstr(name, rule->match) != NULL;
}

/* The error that a call is to fail with; 0: half done; -1: not at all. */
static int
fault(const char *call, const char *name, size_t size)
{
	const char *at = page;

	for (int number = 0; at != NULL && *at != 0 && number < MAX_RULES; number++)
	{
		Rule		rule;

		if (sscanf(at, "%15s %127s %d %d %d %d", rule.call, rule.match,
				   &rule.error, &rule.skip, &rule.times, &rule.pid) != 6)
			return -1;
		if (strcmp(rule.call, call) == 0 && matches(&rule, name, size) &&
			due(&rule, number))
			return rule.error;
		at = strchr(at, '\n');
		if (at != NULL)
			at++;
	}
	return -1;
}

/* No rule: the quick way, without asking for the file's name. */
static int
idle(void)
{
	return page == NULL || *page == 0;
}

static int
fault_of_file(const char *call, int fd)
{
	char		link[64];
	char		name[1024];
	ssize_t		length;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	length = readlink(link, name, sizeof(name) - 1);
	name[length < 0 ? 0 : length] = 0;
	return fault(call, name, 0);
}

static int
write_fault(int fd, off_t offset)
{
	struct stat st;

	return fault_of_file(fstat(fd, &st) == 0 && offset >= st.st_size ?
						 "extend" : "write", fd);
}

ssize_t
pread(int fd, void *buffer, size_t size, off_t offset)
{
	int			error = idle() ? -1 : fault_of_file("read", fd);

	REAL(pread);
	if (error > 0)
	{
		errno = error;
		return -1;
	}
	return real(fd, buffer, error == 0 ? size / 2 : size, offset);
}

int
posix_fadvise(int fd, off_t offset, off_t size, int advice)
{
	int			error = idle() ? -1 : fault_of_file("advise", fd);

	REAL(posix_fadvise);
	return error > 0 ? error : real(fd, offset, size, advice);
}

ssize_t
pwrite(int fd, const void *buffer, size_t size, off_t offset)
{
	int			error = idle() ? -1 : write_fault(fd, offset);

	REAL(pwrite);
	if (error > 0)
	{
		errno = error;
		return -1;
	}
	return real(fd, buffer, error == 0 ? (size + 1) / 2 : size, offset);
}

ssize_t
write(int fd, const void *buffer, size_t size)
{
	int			error = idle() ? -1 : fault_of_file("append", fd);

	REAL(write);
	if (error > 0)
	{
		errno = error;
		return -1;
	}
	return real(fd, buffer, error == 0 ? (size + 1) / 2 : size);
}

ssize_t
pwritev(int fd, const struct iovec *iov, int count, off_t offset)
{
	int			error = idle() ? -1 : write_fault(fd, offset);

	REAL(pwritev);
	if (error > 0)
	{
		errno = error;
		return -1;
	}
	return real(fd, iov, count, offset);
}

int
posix_fallocate(int fd, off_t offset, off_t size)
{
	int			error = idle() ? -1 : fault_of_file("resize", fd);

	REAL(posix_fallocate);
	return error > 0 ? error : real(fd, offset, size);
}

int
ftruncate(int fd, off_t size)
{
	int			error = idle() ? -1 : fault_of_file("resize", fd);

	REAL(ftruncate);
	if (error > 0)
	{
		errno = error;
		return -1;
	}
	return real(fd, size);
}

int
shm_open(const char *name, int flags, mode_t mode)
{
	int			error = idle() ? -1 : fault("shm", name, 0);

	REAL(shm_open);
	if (error > 0)
	{
		errno = error;
		return -1;
	}
	return real(name, flags, mode);
}

int
io_uring_queue_init_params(unsigned entries, struct io_uring *ring,
						   struct io_uring_params *params)
{
	int			error = idle() ? -1 : fault("ring", "", 0);

	REAL(io_uring_queue_init_params);
	return error > 0 ? -error : real(entries, ring, params);
}

/* The completion queue is mapped writable. */
unsigned
io_uring_peek_batch_cqe(struct io_uring *ring, struct io_uring_cqe **cqes,
						unsigned count)
{
	unsigned	n;

	REAL(io_uring_peek_batch_cqe);
	n = real(ring, cqes, count);
	for (unsigned i = 0; i < n && !idle(); i++)
	{
		int			error = fault("reap", "", 0);

		if (error > 0)
			cqes[i]->res = -error;
		else if (error == 0 && cqes[i]->res > 0)
			cqes[i]->res /= 2;
	}
	return n;
}

void *
malloc(size_t size)
{
	if (!idle() && fault("malloc", NULL, size) > 0)
	{
		errno = ENOMEM;
		return NULL;
	}
	return __libc_malloc(size);
}

void *
realloc(void *old, size_t size)
{
	if (!idle() && fault("malloc", NULL, size) > 0)
	{
		errno = ENOMEM;
		return NULL;
	}
	return __libc_realloc(old, size);
}
