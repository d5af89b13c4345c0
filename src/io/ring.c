/*
 * ring.c
 *		Reads in flight, by io_uring or, if that cannot be used, by pread; and
 *		file descriptors.
 *
 * The ring is made at the backend's first read and kept until the backend
 * ends, unless the kernel refuses to serve it. Queued reads stay in a list of
 * our own until they are submitted together. Entries that the kernel does not
 * take are removed from the submission queue at once, so that no entry
 * outlives the call and a queued read can simply be dropped.
 */
#include "io/ring.h"

#include <fcntl.h>
#include <unistd.h>
#include <liburing.h>

#include "common/relpath.h"
#include "pgstat.h"
#include "storage/fd.h"
#include "utils/inval.h"
#include "utils/wait_event.h"

/*
 * Descriptors of the segments of indexes' files, for reads that bypass shared_buffers.
 *
 * PostgreSQL may close and reopen its virtual descriptors at any time, so
 * these are kernel descriptors of our own, counted with AcquireExternalFD().
 * One is closed when the relation's relcache entry is invalidated (dropped,
 * rewritten, moved), when it has been unused for longest and another is
 * needed, or when the settings ask for another kind.
 */

#define MAX_FILES 128

/*
 * An open segment of an index's file. Pinned by reads that name it and are not
 * submitted.
 */
typedef struct PipeannFile
{
	int			fd;				/* -1: free entry */
	bool		direct;			/* opened with O_DIRECT */
	bool		stale;			/* close as soon as it is not pinned */
	int			pins;
	Oid			relid;
	uint32		segment;
	uint64		last_used;
	PipeannLocator locator;
} PipeannFile;

bool		pipeann_direct_io = true;

static PipeannFile files[MAX_FILES];
static int	nfiles = 0;				/* entries below this were used */
static uint64 use_clock = 0;
static bool direct_refused = false;

static void
CloseFile(PipeannFile *file)
{
	close(file->fd);
	ReleaseExternalFD();
	file->fd = -1;
}

/*
 * Hide an entry. It is closed now, or when the last read that names it has been
 * handed to the kernel, which then has a reference of its own.
 */
static void
DiscardFile(PipeannFile *file)
{
	file->stale = true;
	if (file->pins == 0)
		CloseFile(file);
}

static void
UnpinFile(PipeannRead *read)
{
	PipeannFile *file = read->file;

	read->file = NULL;
	Assert(file->pins > 0);
	if (--file->pins == 0 && file->stale)
		CloseFile(file);
}

static void
RelcacheCallback(Datum arg, Oid relid)
{
	(void) arg;
	for (int i = 0; i < MAX_FILES; i++)
	{
		PipeannFile *file = &files[i];

		if (file->fd >= 0 && !file->stale &&
			(relid == InvalidOid || relid == file->relid))
			DiscardFile(file);
	}
}

/* Registers the relcache callback; _PG_init() calls this. */
void
PipeannIoInit(void)
{
	for (int i = 0; i < MAX_FILES; i++)
		files[i].fd = -1;
	CacheRegisterRelcacheCallback(RelcacheCallback, (Datum) 0);
}

/* Note that a read failed because O_DIRECT does not work. */
static void
NoteDirectRefused(void)
{
	if (direct_refused)
		return;
	direct_refused = true;
	ereport(LOG,
			(errmsg("direct I/O is not possible on the index's file system"),
			 errdetail("Index pages are read through the kernel's page cache.")));
}

/* Returns a free entry, after reserving one descriptor for it (AcquireExternalFD()), or NULL. */
static PipeannFile *
TakeFileEntry(void)
{
	PipeannFile *file = NULL;

	for (int i = 0; i < MAX_FILES && file == NULL; i++)
		if (files[i].fd < 0)
			file = &files[i];
	if (file != NULL && AcquireExternalFD())
		return file;

	/* the unpinned entry that was unused for longest */
	file = NULL;
	for (int i = 0; i < MAX_FILES; i++)
		if (files[i].fd >= 0 && files[i].pins == 0 &&
			(file == NULL || files[i].last_used < file->last_used))
			file = &files[i];
	if (file == NULL)
		return NULL;
	DiscardFile(file);
	return AcquireExternalFD() ? file : NULL;
}

static int
OpenSegment(const PipeannLocator *locator, uint32 segment, bool direct)
{
	char		path[MAXPGPATH];
	int			length;
	int			flags = O_RDONLY | O_CLOEXEC | PG_BINARY;
#if PG_VERSION_NUM >= 180000
	RelPathStr	base = relpathperm(*locator, MAIN_FORKNUM);

	length = strlcpy(path, base.str, MAXPGPATH);
#else
	char	   *base = relpathperm(*locator, MAIN_FORKNUM);

	length = strlcpy(path, base, MAXPGPATH);
	pfree(base);
#endif
	if (length >= MAXPGPATH)
		return -1;
	if (segment > 0)
		snprintf(path + length, MAXPGPATH - length, ".%u", segment);
	return BasicOpenFile(path, direct ? flags | PG_O_DIRECT : flags);
}

static PipeannFile *
FindFile(const PipeannLocator *locator, uint32 segment)
{
	for (PipeannFile *file = files; file < files + nfiles; file++)
		if (file->segment == segment && file->fd >= 0 && !file->stale &&
			PipeannLocatorEquals(file->locator, *locator))
			return file;
	return NULL;
}

static PipeannFile *
OpenFile(Relation index, uint32 segment, bool direct)
{
	PipeannFile *file = TakeFileEntry();
	int			fd;

	if (file == NULL)
		return NULL;
	fd = OpenSegment(&PipeannRelationLocator(index), segment, direct);
	if (fd < 0 && direct && errno == EINVAL)
	{
		NoteDirectRefused();
		direct = false;
		fd = OpenSegment(&PipeannRelationLocator(index), segment, direct);
	}
	if (fd < 0)
	{
		ReleaseExternalFD();
		return NULL;
	}
	file->fd = fd;
	file->direct = direct;
	file->stale = false;
	file->pins = 0;
	file->relid = RelationGetRelid(index);
	file->segment = segment;
	file->locator = PipeannRelationLocator(index);
	nfiles = Max(nfiles, file - files + 1);
	return file;
}

/*
 * Returns the descriptor of a segment of the file, pinned. NULL if none can be
 * had: then the block must be read through ReadBuffer().
 */
static PipeannFile *
PinFile(Relation index, uint32 segment, bool direct)
{
	PipeannFile *file = FindFile(&PipeannRelationLocator(index), segment);

	direct = direct && pipeann_direct_io && PG_O_DIRECT != 0 &&
		!direct_refused;
	if (file != NULL && file->direct != direct)
	{
		DiscardFile(file);
		file = NULL;
	}
	if (file == NULL)
		file = OpenFile(index, segment, direct);
	if (file == NULL)
		return NULL;
	file->pins++;
	file->last_used = ++use_clock;
	return file;
}

/* The ring is given up after this many submissions in a row fail for want of memory. */
#define MAX_FAILURES 8

typedef enum RingState
{
	RING_UNTRIED,
	RING_OPEN,
	RING_FAILED
} RingState;

int			pipeann_io_method = PIPEANN_IO_AUTO;

static struct io_uring ring;
static RingState ring_state = RING_UNTRIED;
static int	failures = 0;

static dlist_head queued = DLIST_STATIC_INIT(queued);
static dlist_head submitted = DLIST_STATIC_INIT(submitted);
static dlist_head deferred = DLIST_STATIC_INIT(deferred);
static dlist_head orphans = DLIST_STATIC_INIT(orphans);
static int	num_queued = 0;
static int	num_submitted = 0;

static void
ReportNoRing(int error)
{
	errno = error;
	ereport(LOG,
			(errmsg("io_uring cannot be used: %m"),
			 errdetail("This session reads index pages with pread."),
			 error == EPERM || error == EACCES || error == ENOSYS ?
			 errhint("The kernel or a container's seccomp profile may forbid it (sysctl kernel.io_uring_disabled).") : 0));
}

/*
 * Make the ring. Completions are handled when this process enters the kernel
 * instead of by interrupting it, if the kernel supports that. Returns 0 or
 * -errno.
 */
static int
InitRing(void)
{
	static const unsigned flags[] = {
		IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
		IORING_SETUP_TASKRUN_FLAG,
		IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
		0
	};
	struct io_uring_params params;
	int			result = -EINVAL;

	for (int i = 0; i < (int) lengthof(flags) && result == -EINVAL; i++)
	{
		memset(&params, 0, sizeof(params));
		params.flags = flags[i];
		result = io_uring_queue_init_params(PIPEANN_RING_SIZE, &ring,
											&params);
	}
	if (result < 0)
		return result;

	/* this feature came with IORING_OP_READ, in Linux 5.6 */
	if (!(params.features & IORING_FEAT_RW_CUR_POS))
	{
		io_uring_queue_exit(&ring);
		return -ENOSYS;
	}
	(void) fcntl(ring.ring_fd, F_SETFD, FD_CLOEXEC);
	return 0;
}

/* Whether reads go through io_uring; the first call finds out. */
static bool
RingInUse(void)
{
	if (pipeann_io_method == PIPEANN_IO_PREAD)
		return false;
	if (ring_state == RING_UNTRIED)
	{
		int			result = -EMFILE;

		if (AcquireExternalFD())
		{
			result = InitRing();
			if (result < 0)
				ReleaseExternalFD();
		}
		ring_state = result < 0 ? RING_FAILED : RING_OPEN;
		if (result < 0)
			ReportNoRing(-result);
	}
	return ring_state == RING_OPEN;
}

/* Finish a read that is in no list. */
static void
CompleteRead(PipeannRead *read, int result)
{
	read->state = PIPEANN_READ_DONE;
	read->result = result;
	if (read->owner == NULL)
		dlist_push_tail(&orphans, &read->node);
	else
	{
		(*read->owner->in_flight)--;
		dlist_push_tail(&read->owner->done, &read->node);
	}
}

/* Process completions; with deferred task work this may enter the kernel. */
static void
ReapRing(void)
{
	struct io_uring_cqe *cqes[32];
	unsigned	count;

	do
	{
		count = io_uring_peek_batch_cqe(&ring, cqes, lengthof(cqes));
		for (unsigned i = 0; i < count; i++)
		{
			PipeannRead *read = io_uring_cqe_get_data(cqes[i]);

			dlist_delete(&read->node);
			num_submitted--;
			CompleteRead(read, cqes[i]->res);
		}
		io_uring_cq_advance(&ring, count);
	} while (count == lengthof(cqes));
}

/* Fill the submission queue with queued reads; returns how many. */
static int
PrepareQueued(void)
{
	int			count = 0;
	dlist_iter	iter;

	dlist_foreach(iter, &queued)
	{
		PipeannRead *read = dlist_container(PipeannRead, node, iter.cur);
		struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);

		if (sqe == NULL)
			break;
		io_uring_prep_read(sqe, read->file->fd, read->buffer, read->length,
						   read->offset);
		io_uring_sqe_set_data(sqe, read);
		count++;
	}
	return count;
}

/*
 * Submit queued reads and wait for some completions. Returns 0 or -errno.
 * Without submission queue polling the kernel reads the queue's tail only
 * during the call, so the tail may be reset afterwards.
 */
static int
EnterRing(unsigned wait_for)
{
	struct io_uring_sq *sq = &ring.sq;
	unsigned	head = *sq->khead;
	int			prepared = PrepareQueued();
	int			result = wait_for > 0 ?
		io_uring_submit_and_wait(&ring, wait_for) : io_uring_submit(&ring);
	int			taken = io_uring_smp_load_acquire(sq->khead) - head;

	/* the kernel has taken the first reads of the queue */
	for (int i = 0; i < taken; i++)
	{
		PipeannRead *read = dlist_container(PipeannRead, node,
											dlist_pop_head_node(&queued));

		UnpinFile(read);
		read->state = PIPEANN_READ_SUBMITTED;
		dlist_push_tail(&submitted, &read->node);
	}
	num_queued -= taken;
	num_submitted += taken;
	if (taken < prepared)
	{
		sq->sqe_head = sq->sqe_tail = head + taken;
		*sq->ktail = head + taken;
	}
	return result < 0 ? result : 0;
}

/* Leave queued reads to pread. */
static void
DeferQueued(void)
{
	while (!dlist_is_empty(&queued))
	{
		PipeannRead *read = dlist_container(PipeannRead, node,
											dlist_pop_head_node(&queued));

		read->state = PIPEANN_READ_DEFERRED;
		dlist_push_tail(&deferred, &read->node);
	}
	num_queued = 0;
}

/* Wait for a completion without submitting. Returns 0 or -errno. */
static int
AwaitCompletion(void)
{
	struct io_uring_cqe *cqe;

	return io_uring_wait_cqe(&ring, &cqe);
}

/*
 * Give the ring up permanently, after waiting for the submitted reads. If the
 * kernel does not let us wait, those reads are lost: it may still write into
 * their buffers.
 */
static void
AbandonRing(int error)
{
	DeferQueued();
	while (num_submitted > 0)
	{
		int			result = AwaitCompletion();

		if (result < 0 && result != -EINTR)
			break;
		ReapRing();
	}
	while (!dlist_is_empty(&submitted))
	{
		PipeannRead *read = dlist_container(PipeannRead, node,
											dlist_pop_head_node(&submitted));

		read->lost = true;
		CompleteRead(read, -EIO);
	}
	num_submitted = 0;
	io_uring_queue_exit(&ring);
	ReleaseExternalFD();
	ring_state = RING_FAILED;
	ReportNoRing(error);
}

static bool
IsShortage(int result)
{
	return result == -EAGAIN || result == -EBUSY || result == -ENOMEM;
}

/*
 * Handle a failed submission. If the kernel is short of memory, and no
 * submitted read can free some, queued reads are done by pread; after several
 * failures in a row the ring is given up.
 */
static void
HandleFailure(int result)
{
	if (result == -EINTR)
		return;
	if (!IsShortage(result) || ++failures >= MAX_FAILURES)
		AbandonRing(-result);
	else if (num_submitted == 0)
		DeferQueued();
}

/* Submit, and block until a read of any owner has completed, or a signal. */
static void
WaitRing(void)
{
	int			result;

	pgstat_report_wait_start(WAIT_EVENT_DATA_FILE_READ);
	result = EnterRing(1);
	if (IsShortage(result) && num_submitted > 0)
		result = AwaitCompletion();
	pgstat_report_wait_end();
	if (result < 0)
		HandleFailure(result);
	else
		failures = 0;
}

/* Do the owner's first deferred read; false if it has none. */
static bool
ReadDeferred(PipeannReadOwner *owner)
{
	PipeannRead *read = NULL;
	dlist_iter	iter;
	ssize_t		result;

	dlist_foreach(iter, &deferred)
	{
		read = dlist_container(PipeannRead, node, iter.cur);
		if (read->owner == owner)
			break;
		read = NULL;
	}
	if (read == NULL)
		return false;

	pgstat_report_wait_start(WAIT_EVENT_DATA_FILE_READ);
	do
		result = pread(read->file->fd, read->buffer, read->length,
					   read->offset);
	while (result < 0 && errno == EINTR);
	if (result < 0)
		result = -errno;
	pgstat_report_wait_end();

	dlist_delete(&read->node);
	UnpinFile(read);
	CompleteRead(read, (int) result);
	return true;
}

/* Have the kernel read ahead for deferred reads. */
static void
AdviseDeferred(void)
{
	dlist_iter	iter;

	dlist_reverse_foreach(iter, &deferred)
	{
		PipeannRead *read = dlist_container(PipeannRead, node, iter.cur);

		if (read->advised)
			return;
		read->advised = true;
#ifdef POSIX_FADV_WILLNEED
		if (!read->direct)
			(void) posix_fadvise(read->file->fd, read->offset, read->length,
								 POSIX_FADV_WILLNEED);
#endif
	}
}

/* Take note of completed reads, without waiting. */
void
PipeannReadPoll(void)
{
	if (num_submitted > 0)
		ReapRing();
}

/*
 * Queue a read of blocks; its owner and buffer are set. It is short if the blocks
 * cross the boundary of a segment of the file. False if no descriptor can be had.
 */
bool
PipeannReadQueue(PipeannRead *read, Relation index, BlockNumber blkno,
				 int blocks)
{
	BlockNumber first = blkno % (BlockNumber) RELSEG_SIZE;
	bool		by_ring;

	/* this may wait and raise errors, so it comes before anything is pinned */
	while (num_queued + num_submitted >= PIPEANN_RING_SIZE)
	{
		CHECK_FOR_INTERRUPTS();
		WaitRing();
		PipeannReadPoll();
	}
	by_ring = RingInUse();
	read->file = PinFile(index, blkno / RELSEG_SIZE, by_ring);
	if (read->file == NULL)
		return false;
	read->length = blocks * BLCKSZ;
	read->offset = (off_t) first * BLCKSZ;
	read->direct = read->file->direct;
	read->advised = false;
	(*read->owner->in_flight)++;
	if (by_ring)
	{
		read->state = PIPEANN_READ_QUEUED;
		dlist_push_tail(&queued, &read->node);
		num_queued++;
	}
	else
	{
		read->state = PIPEANN_READ_DEFERRED;
		dlist_push_tail(&deferred, &read->node);
	}
	return true;
}

/* Start the queued reads. */
void
PipeannReadSubmit(void)
{
	if (num_queued > 0)
	{
		int			result = EnterRing(0);

		/* there is room again when submitted reads complete */
		if (result < 0 && !(IsShortage(result) && num_submitted > 0))
			HandleFailure(result);
	}
	AdviseDeferred();
}

/*
 * Start the queued reads and wait, interruptibly, until the owner has fewer
 * than below reads in flight.
 */
void
PipeannReadWait(PipeannReadOwner *owner, int below)
{
	while (*owner->in_flight >= below)
	{
		CHECK_FOR_INTERRUPTS();
		AdviseDeferred();
		if (!ReadDeferred(owner))
			WaitRing();
		PipeannReadPoll();
	}
}

/* Cancel a read. False if the kernel has it: then it becomes an orphan. */
bool
PipeannReadCancel(PipeannRead *read)
{
	switch (read->state)
	{
		case PIPEANN_READ_IDLE:
			break;
		case PIPEANN_READ_QUEUED:
			num_queued--;
			/* FALLTHROUGH */
		case PIPEANN_READ_DEFERRED:
			dlist_delete(&read->node);
			UnpinFile(read);
			(*read->owner->in_flight)--;
			break;
		case PIPEANN_READ_SUBMITTED:
			(*read->owner->in_flight)--;
			read->owner = NULL;
			return false;
		case PIPEANN_READ_DONE:
			dlist_delete(&read->node);
			break;
	}
	read->state = PIPEANN_READ_IDLE;
	return true;
}

/*
 * Return a completed read of an owner, or NULL. Without an owner return an
 * orphan; this may run while a transaction aborts, so no error, no allocation.
 */
PipeannRead *
PipeannReadTake(PipeannReadOwner *owner)
{
	dlist_head *done = owner == NULL ? &orphans : &owner->done;
	PipeannRead *read;

	if (dlist_is_empty(done))
		return NULL;
	read = dlist_container(PipeannRead, node, dlist_pop_head_node(done));
	read->state = PIPEANN_READ_IDLE;
	if (owner != NULL && read->direct && read->result == -EINVAL)
		NoteDirectRefused();
	return read;
}

/*
 * The method by which this backend reads, "io_uring" or "pread"; the first
 * call finds out. Sets *direct to whether it opens files with O_DIRECT.
 */
const char *
PipeannIoInUse(bool *direct)
{
	bool		by_ring = RingInUse();

	*direct = by_ring && pipeann_direct_io && !direct_refused;
	return by_ring ? "io_uring" : "pread";
}
