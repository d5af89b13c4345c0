/*
 * ring.h
 *		What the files of io/ share: reads, descriptors, frames.
 *
 * A read is queued, submitted, done. In between its buffer belongs to the
 * kernel. An owner that gives up a submitted read makes it an orphan: the
 * buffer is free once the orphan is done and was taken by
 * PipeannReadNextOrphan().
 */
#ifndef PIPEANN_IO_RING_H
#define PIPEANN_IO_RING_H

#include "io/io.h"

#include "lib/ilist.h"
#include "port/atomics.h"
#include "utils/rel.h"

/* file.c */

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
	int			next;			/* next entry of the hash chain, or -1 */
	Oid			relid;
	uint32		segment;
	uint64		last_used;
	PipeannLocator locator;
} PipeannFile;

/*
 * Returns the descriptor of a segment of the file, pinned. NULL if there is none to
 * be had: then the block must be read through ReadBuffer().
 */
extern PipeannFile *PipeannFileOpen(Relation index, uint32 segment,
									bool direct);
extern void PipeannFileUnpin(PipeannFile *file);

/* Note that a read failed as O_DIRECT does not work; whether it works. */
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

/* The owner of reads: a page source or a profile. */
typedef struct PipeannReadOwner
{
	dlist_head	done;
	int		   *in_flight;		/* reads queued or submitted */
} PipeannReadOwner;

typedef struct PipeannRead
{
	dlist_node	node;			/* in the list for the state */
	PipeannReadState state;
	bool		direct;
	bool		advised;		/* pread: the kernel knows of the read */
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

/* Whether reads go through io_uring; finds out at the first call. */
extern bool PipeannRingInUse(void);

/*
 * Make room for one more read; may wait and raise errors, so it comes before
 * anything is pinned. Then queue the read, of which buffer, length, offset,
 * owner and file are set; it takes over the file's pin.
 */
extern void PipeannReadReserve(void);
extern void PipeannReadQueue(PipeannRead *read);

/* Start the queued reads. */
extern void PipeannReadSubmit(void);

/* Take note of completed reads, without waiting. */
extern void PipeannReadPoll(void);

/*
 * Start the queued reads and wait, interruptibly, until the owner has fewer
 * than below reads in flight.
 */
extern void PipeannReadWait(PipeannReadOwner *owner, int below);

/* Give a read up. False if the kernel has it: then it becomes an orphan. */
extern bool PipeannReadCancel(PipeannRead *read);

/* Take an orphan that is done, or NULL. */
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

/* The frame that a read is part of. */
static inline PipeannBufferedFrame *
PipeannReadFrame(PipeannRead *read)
{
	return (PipeannBufferedFrame *)
		((char *) read - offsetof(PipeannBufferedFrame, read));
}

/*
 * Take a frame with a buffer of node_pages blocks: one of the backend's free ones, or a
 * new one.
 */
extern PipeannBufferedFrame *PipeannFrameAlloc(int node_pages);

/* Give back a frame that has no read in flight. */
extern void PipeannFrameFree(PipeannBufferedFrame *frame);

/* Give a frame whose read was lost another buffer. */
extern void PipeannFrameReplaceBuffer(PipeannBufferedFrame *frame);

/* Free what exceeds the memory that a backend keeps between scans. */
extern void PipeannFrameTrim(void);

/* resident.c */

/* How a block was found in shared_buffers. */
typedef struct PipeannResident
{
	pg_atomic_uint32 *seen;		/* PipeannPageLastSeen(), or NULL */
	Buffer		buffer;			/* the block's buffer */
	bool		sound;			/* found sound in this buffer before */
} PipeannResident;

/*
 * Copy a block out of shared_buffers if it is there, without verifying it and
 * without I/O. If the buffer where it was seen last still has the block, the
 * mapping table is not asked. With length > 0, and if the block is known to be
 * sound, copies only the page header and length bytes from offset on. Sets the
 * other members of *resident.
 */
extern bool PipeannCopyResident(Relation index, BlockNumber blkno,
								PipeannResident *resident, Size offset,
								Size length, char *dst);

/* Have the processor fetch the bytes that such a copy will read. */
extern void PipeannPrefetchResident(const pg_atomic_uint32 *seen, Size offset,
									Size length);

/* Note that a copied block has been verified. */
extern void PipeannNoteSound(const PipeannResident *resident);

/* Copy a block, verified, by ReadBuffer(). True if it was resident. */
extern bool PipeannCopyThroughBuffer(Relation index, BlockNumber blkno,
									 char *dst);

#endif							/* PIPEANN_IO_RING_H */
