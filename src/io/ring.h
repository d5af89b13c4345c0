/*
 * ring.h
 *		What the files of io/ share: reads, descriptors, frame buffers.
 *
 * A read is queued, submitted, done. In between its buffer belongs to the
 * kernel, so whoever gives up a read that the kernel has makes it an orphan:
 * the buffer is free once the orphan is handed out as done.
 */
#ifndef PIPEANN_IO_RING_H
#define PIPEANN_IO_RING_H

#include "io/io.h"

#include "lib/ilist.h"
#include "port/atomics.h"
#include "utils/rel.h"

/* file.c */

/* An open segment. Pinned while a read that is not submitted yet names it. */
typedef struct PipeannFile
{
	int			fd;				/* -1: free entry */
	bool		direct;			/* opened with O_DIRECT */
	bool		stale;			/* close as soon as it is not pinned */
	int			pins;
	int			next;			/* next entry of the hash chain, or -1 */
	Oid			relid;
	uint32		segment;
	uint64		last_used;
	PipeannLocator locator;
} PipeannFile;

/*
 * The descriptor of a segment, pinned; NULL if none can be had, and the block
 * must then be read through ReadBuffer.
 */
extern PipeannFile *PipeannFileOpen(Relation index, uint32 segment,
									bool direct);
extern void PipeannFileUnpin(PipeannFile *file);

/* The first read from a file told that O_DIRECT does not work there. */
extern void PipeannFileDirectRefused(void);
extern bool PipeannFileDirectWorks(void);

/* ring.c */

typedef enum PipeannReadState
{
	PIPEANN_READ_IDLE,
	PIPEANN_READ_QUEUED,		/* for the ring, not submitted */
	PIPEANN_READ_DEFERRED,		/* pread, when it is waited for */
	PIPEANN_READ_SUBMITTED,		/* the kernel may write into the buffer */
	PIPEANN_READ_DONE			/* in the owner's done list */
} PipeannReadState;

/* Who waits for reads. */
typedef struct PipeannReadOwner
{
	dlist_head	done;
	int		   *in_flight;		/* reads queued or submitted */
} PipeannReadOwner;

typedef struct PipeannRead
{
	dlist_node	node;			/* of the list that the state says */
	PipeannReadState state;
	bool		direct;
	bool		advised;		/* pread: the kernel has been told */
	bool		lost;			/* done, but the kernel may still write */
	PipeannReadOwner *owner;	/* NULL: orphan */
	PipeannFile *file;			/* while queued */
	char	   *buffer;
	int			length;
	int			result;			/* bytes read, or -errno */
	off_t		offset;
} PipeannRead;

/* The most reads that the ring holds, of all owners and orphans. */
#define PIPEANN_RING_SIZE 128

/* Whether reads go through io_uring; probes at the first call. */
extern bool PipeannRingInUse(void);

/*
 * Queue a read; buffer, length, offset, file (its pin is taken over) and owner
 * are set. Waits for room first, PipeannReadReserve(), which may raise an
 * error and so comes before anything is pinned.
 */
extern void PipeannReadReserve(void);
extern void PipeannReadQueue(PipeannRead *read);

/* Start what is queued. */
extern void PipeannReadSubmit(void);

/* Collect what has completed, without waiting. */
extern void PipeannReadPoll(void);

/*
 * Start what is queued and wait until the owner has fewer than below reads in
 * flight. Interruptible.
 */
extern void PipeannReadWait(PipeannReadOwner *owner, int below);

/*
 * Give a read up. False: the kernel has it, and it is an orphan from now on.
 */
extern bool PipeannReadCancel(PipeannRead *read);

/* Take a finished orphan, or NULL. */
extern PipeannRead *PipeannReadNextOrphan(void);

/* frame.c */

struct PipeannSlab;

/* A frame with its buffer of node_pages blocks. */
typedef struct PipeannBufferedFrame
{
	PipeannFrame frame;			/* first: what the search sees */
	PipeannRead read;
	dlist_node	node;			/* of its source's frames, or of free ones */
	struct PipeannSlab *slab;
	char	   *buffer;
	BlockNumber blkno;
	uint64		resident;		/* blocks to take from shared_buffers */
} PipeannBufferedFrame;

static inline PipeannBufferedFrame *
PipeannReadFrame(PipeannRead *read)
{
	return (PipeannBufferedFrame *)
		((char *) read - offsetof(PipeannBufferedFrame, read));
}

extern PipeannBufferedFrame *PipeannFrameAlloc(int node_pages);

/* Give back a frame whose read, if any, was not or is no longer in flight. */
extern void PipeannFrameFree(PipeannBufferedFrame *frame);

/* Replace the buffer of a frame whose read was lost. */
extern void PipeannFrameReplaceBuffer(PipeannBufferedFrame *frame);

/* Free what is above the bound on memory kept between scans. */
extern void PipeannFrameTrim(void);

/* resident.c */

/* How a block was found in shared_buffers. */
typedef struct PipeannResident
{
	pg_atomic_uint32 *seen;		/* where it was seen last (PipeannPageLastSeen()), or NULL */
	Buffer		buffer;			/* where it is */
	bool		sound;			/* was found to be sound there before */
} PipeannResident;

/*
 * Copy a block out of shared_buffers if it is there; not verified. Never does
 * I/O. A buffer that has been seen and still has the block is found without a
 * look at the mapping table. With length > 0, and if it is sound, the copy is of
 * the page's header and length bytes from offset on.
 */
extern bool PipeannCopyResident(Relation index, BlockNumber blkno,
								PipeannResident *resident, Size offset,
								Size length, char *dst);

/* Have the processor fetch what such a copy is made from. */
extern void PipeannPrefetchResident(const pg_atomic_uint32 *seen, Size offset,
									Size length);

/* A block that was copied has been verified. */
extern void PipeannNoteSound(const PipeannResident *resident);

/* Copy a block read through ReadBuffer, verified. True if it was resident. */
extern bool PipeannCopyThroughBuffer(Relation index, BlockNumber blkno,
									 char *dst);

#endif							/* PIPEANN_IO_RING_H */
