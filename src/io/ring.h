/*
 * ring.h
 *		Reads of blocks past shared_buffers; private to io/.
 *
 * A read is queued, submitted, done, taken. In between its buffer belongs to the
 * kernel. An owner that gives up a submitted read makes it an orphan: the
 * buffer is free once the orphan is done and was taken.
 */
#ifndef PIPEANN_IO_RING_H
#define PIPEANN_IO_RING_H

#include "io/io.h"

#include "lib/ilist.h"
#include "utils/rel.h"

struct PipeannFile;

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
	struct PipeannFile *file;	/* while queued */
	char	   *buffer;
	int			length;
	int			result;			/* bytes read, or -errno */
	off_t		offset;
} PipeannRead;

/* The most reads that the ring holds, of all owners and orphans. */
#define PIPEANN_RING_SIZE 128

extern bool PipeannReadQueue(PipeannRead *read, Relation index,
							 BlockNumber blkno, int blocks);
extern void PipeannReadSubmit(void);
extern void PipeannReadPoll(void);
extern void PipeannReadWait(PipeannReadOwner *owner, int below);
extern PipeannRead *PipeannReadTake(PipeannReadOwner *owner);
extern bool PipeannReadCancel(PipeannRead *read);

#endif							/* PIPEANN_IO_RING_H */
