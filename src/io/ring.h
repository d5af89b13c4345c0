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

/* How a block was found in shared_buffers. */
typedef struct PipeannResident
{
	pg_atomic_uint32 *seen;		/* PipeannPageLastSeen(), or NULL */
	Buffer		buffer;			/* the block's buffer */
	bool		sound;			/* found sound in this buffer before */
} PipeannResident;

/* ring.c */
extern PipeannFile *PipeannFileOpen(Relation index, uint32 segment,
									bool direct);
extern void PipeannFileDirectRefused(void);
extern bool PipeannRingInUse(void);
extern void PipeannReadReserve(void);
extern void PipeannReadQueue(PipeannRead *read);
extern void PipeannReadSubmit(void);
extern void PipeannReadPoll(void);
extern void PipeannReadWait(PipeannReadOwner *owner, int below);
extern bool PipeannReadCancel(PipeannRead *read);
extern PipeannRead *PipeannReadNextOrphan(void);

/* frame.c */
extern PipeannBufferedFrame *PipeannFrameAlloc(int node_pages);
extern void PipeannFrameFree(PipeannBufferedFrame *frame);
extern void PipeannFrameReplaceBuffer(PipeannBufferedFrame *frame);
extern void PipeannFrameTrim(void);

#endif							/* PIPEANN_IO_RING_H */
