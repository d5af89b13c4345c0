/*
 * pool.h
 *		The candidate pool: the L nearest candidates in order, an overflow area
 *		after them, and what fell out of both, kept so that a search can go on.
 */
#ifndef PIPEANN_POOL_H
#define PIPEANN_POOL_H

#include "base/base.h"
#include "search/termination.h"

#define PIPEANN_NO_PAGE PG_UINT32_MAX

typedef struct PipeannCandidate
{
	float		dist;
	uint32		id;
	uint32		page;			/* graph page ordinal */
	uint32		ref:27;			/* in the search's page table, or NO_REF */
	uint32		matches:1;		/* stays when it is behind the head */
	uint32		absent:1;		/* its page would have to be read */
	uint32		beam:2;			/* chosen for this beam, 0 for none */
	uint32		explored:1;
} PipeannCandidate;

#define PIPEANN_NO_REF 0x07FFFFFFU

/* Beams that a candidate may be chosen for, and 0 for none. */
#define PIPEANN_BEAMS 4

typedef struct PipeannDiscard
{
	float		dist;
	uint32		id;
} PipeannDiscard;

typedef struct PipeannPool
{
	PipeannCandidate *items;	/* [capacity], the first count are sorted */
	int			count;
	int			length;			/* L: the first so many must be explored, */
	float		bound;			/* unless they are farther than this; */
	int			least;			/* the first so many even then */
	int			capacity;		/* length with the overflow area */
	int			head;			/* behind the first so many stand only those
								 * that match */
	int			matching;		/* so many behind the head must be explored */
	int			first_open;		/* items before it are explored */
	int			first_unread;	/* items before it have a page reference */
	int			first_unseen;	/* items before it were found to be explored,
								 * chosen, or not at hand; 0 when a page comes */
	int			chosen[PIPEANN_BEAMS];	/* candidates of each beam that are not
										 * explored; of beam 0 those of none */

	int			items_size;		/* items that there is memory for */
	PipeannDiscard *discards;
	uint64		ndiscards;
	uint64		discards_size;
} PipeannPool;

/* Whether a candidate at this distance would come into the pool now. */
static inline bool
PipeannPoolTakes(const PipeannPool *pool, float dist)
{
	return pool->count < pool->capacity ||
		!(dist >= pool->items[pool->count - 1].dist);
}

/* Whether a candidate at this distance that does not match would come in now. */
static inline bool
PipeannPoolTakesInHead(const PipeannPool *pool, float dist)
{
	return pool->count < Min(pool->head, pool->capacity) ||
		!(dist >= pool->items[Min(pool->count, pool->head) - 1].dist);
}

/* Position of the first candidate not explored, or count. */
static inline int
PipeannPoolFirstOpen(PipeannPool *pool)
{
	while (pool->first_open < pool->count &&
		   pool->items[pool->first_open].explored)
		pool->first_open++;
	return pool->first_open;
}

/* Position of the first candidate without a page reference, or count. */
static inline int
PipeannPoolFirstUnread(PipeannPool *pool)
{
	while (pool->first_unread < pool->count &&
		   pool->items[pool->first_unread].ref != PIPEANN_NO_REF)
		pool->first_unread++;
	return pool->first_unread;
}

/*
 * Whether the candidate at a position must be explored; if it need not, those
 * after it need not either.
 */
static inline bool
PipeannPoolWants(const PipeannPool *pool, int position)
{
	return position < Min(pool->count, pool->length) &&
		(position < pool->least || !(pool->items[position].dist > pool->bound));
}

/* Whether a candidate that must be explored is not explored yet. */
static inline bool
PipeannPoolIsOpen(PipeannPool *pool)
{
	return PipeannPoolWants(pool, PipeannPoolFirstOpen(pool));
}

extern void PipeannPoolReset(PipeannPool *pool, int length);
extern void PipeannPoolWiden(PipeannPool *pool, int length, int capacity);
extern void PipeannPoolSetHead(PipeannPool *pool, int head, int matching);
extern void PipeannPoolMerge(PipeannPool *pool, PipeannCandidate *items, int n);
extern void PipeannPoolDiscard(PipeannPool *pool, uint32 id, float dist);
extern void PipeannPoolRefill(PipeannPool *pool, int length);

/* Choose a candidate that is not explored for a beam. */
static inline void
PipeannPoolChoose(PipeannPool *pool, int position, int beam)
{
	PipeannCandidate *item = &pool->items[position];

	pool->chosen[item->beam]--;
	pool->chosen[beam]++;
	item->beam = beam;
}

/* Mark a candidate as explored. */
static inline void
PipeannPoolSetExplored(PipeannPool *pool, int position)
{
	PipeannCandidate *item = &pool->items[position];

	pool->chosen[item->beam]--;
	item->explored = 1;
}

#endif							/* PIPEANN_POOL_H */
