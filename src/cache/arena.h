/*
 * arena.h
 *		The shared memory for caches; private to cache/.
 *
 * It comes from segments: an arena in the server's own shared memory if the library is
 * preloaded, and dynamic ones beyond it, up to pipeann.shared_memory in all. PostgreSQL's
 * free page manager keeps each segment's pages.
 */
#ifndef PIPEANN_ARENA_H
#define PIPEANN_ARENA_H

#include "cache/cache.h"

#include "port/atomics.h"
#include "storage/dsm.h"
#include "storage/lwlock.h"
#include "utils/freepage.h"

#define PIPEANN_MAX_SEGMENTS 64

/* Changed under arena->lock. */
typedef struct PipeannSegment
{
	uint64		serial;			/* tells segments with the same number apart; 0: none */
	dsm_handle	handle;			/* of a dynamic one */
	uint32		pages;			/* that may be given out */
	uint32		used;			/* given out */
} PipeannSegment;

typedef struct PipeannArena
{
	LWLock		lock;
	uint64		serials;
	pg_atomic_uint64 limit;		/* pages that may be given out */
	pg_atomic_uint64 used;		/* pages given out, of all segments */
	PipeannSegment segments[PIPEANN_MAX_SEGMENTS];
} PipeannArena;

/* Where a run of pages begins: number of the segment and of its page, or this. */
typedef uint64 PipeannArenaPlace;

#define PIPEANN_NOWHERE UINT64CONST(0)

static inline uint64
PipeannArenaPages(Size size)
{
	return add_size(size, FPM_PAGE_SIZE - 1) / FPM_PAGE_SIZE;
}

/* Whether the first segment is the server's own memory. */
static inline bool
PipeannArenaIsPreloaded(const PipeannArena *arena)
{
	return arena->segments[0].serial != 0 &&
		arena->segments[0].handle == DSM_HANDLE_INVALID;
}

/*
 * Set the limit to pipeann.shared_memory. All backends share the value that was read last: one
 * in a long statement has an older setting, by which it would drop the others' caches.
 */
static inline void
PipeannArenaSetLimit(PipeannArena *arena, int megabytes)
{
	pg_atomic_write_u64(&arena->limit, (uint64) megabytes * (1024 * 1024 / FPM_PAGE_SIZE));
}

static inline uint64
PipeannArenaLimit(PipeannArena *arena)
{
	return pg_atomic_read_u64(&arena->limit);
}

extern char pipeann_arena_error[]; /* the system's last refusal, or "" */
extern Size PipeannArenaReserved(void);
extern void PipeannArenaInit(PipeannArena *arena, int tranche_id);
extern void PipeannArenaAddReserved(PipeannArena *arena, char *reserved, Size size, bool is_new);
extern PipeannArenaPlace PipeannArenaTake(PipeannArena *arena, uint64 pages);
extern bool PipeannArenaGive(PipeannArena *arena, PipeannArenaPlace place, uint64 pages);
extern void PipeannArenaUnmapGone(PipeannArena *arena);
extern char *PipeannArenaAt(PipeannArena *arena, PipeannArenaPlace place);

#endif							/* PIPEANN_ARENA_H */
