/*
 * pool.h
 *		The candidate pool: the L nearest candidates in order, an overflow area
 *		after them, and those dropped from both, kept so that a search can go
 *		on; and early termination.
 */
#ifndef PIPEANN_POOL_H
#define PIPEANN_POOL_H

#include <math.h>

#include "base/base.h"

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
	int			length;			/* L: number at the front that must be explored, */
	float		bound;			/* unless they are farther than this; */
	int			least;			/* number explored even then */
	int			capacity;		/* length with the overflow area */
	int			head;			/* number at the front; behind them there
								 * are only those that match */
	int			matching;		/* number behind the head to be explored */
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

/* Allocate an array of n elements, or enlarge one that is not NULL and keep its contents. */
static inline void *
PipeannResized(void *array, Size n, Size element)
{
	Size		size = mul_size(n, element);

	return array == NULL ? PipeannAlloc(size) : PipeannRealloc(array, size);
}

/* Give an array, with room for `size` elements, room for at least `wanted`. */
#define PIPEANN_RESERVE(array, size, wanted) \
do { \
	if ((wanted) > (size)) \
	{ \
		(array) = PipeannResized((array), (wanted), sizeof(*(array))); \
		(size) = (wanted); \
	} \
} while (0)

/* Whether a candidate at this distance would get into the pool now. */
static inline bool
PipeannPoolTakes(const PipeannPool *pool, float dist)
{
	return pool->count < pool->capacity ||
		!(dist >= pool->items[pool->count - 1].dist);
}

/* Whether a candidate at this distance that does not match would get in now. */
static inline bool
PipeannPoolTakesInHead(const PipeannPool *pool, float dist)
{
	return pool->count < Min(pool->head, pool->capacity) ||
		!(dist >= pool->items[Min(pool->count, pool->head) - 1].dist);
}

/* Whether a candidate is neither explored nor chosen for a beam. */
static inline bool
PipeannIsFree(const PipeannCandidate *item)
{
	return !item->explored && item->beam == 0;
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
extern void PipeannPoolFill(PipeannPool *pool, int length);
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

/*
 * Early termination: when a search may end before its list is explored.
 *
 * The nearest rows are unlikely to change when every candidate left is, by its
 * code, much farther than the last of them. So easy queries end early and hard
 * ones go on. (The idea of ending by the distance of the k-th nearest, times a
 * factor, instead of by the list's length is from Al-Jazzazi et al., Distance
 * Adaptive Beam Search for Provably Accurate Graph-Based Nearest Neighbor Search,
 * 2025. There distances are exact. Codes err, so their error counts too.)
 */

/* Results that are final after an early end: the usual LIMIT. */
#define PIPEANN_EARLY_RESULTS 10

/*
 * Errors are sampled where the search explores, from the first candidates on.
 * These candidates were chosen by their codes, as the remaining ones were:
 * both have more codes that are too small than a random sample would.
 */
#define PIPEANN_MIN_SAMPLES 10
#define PIPEANN_MAX_SAMPLES 64

/* A sample of numbers, such as errors of codes (code distance minus exact distance). */
typedef struct PipeannSample
{
	double		sum;
	double		sum_of_squares;
	int			n;
} PipeannSample;

static inline void
PipeannSampleAdd(PipeannSample *sample, double number)
{
	sample->sum += number;
	sample->sum_of_squares += number * number;
	sample->n++;
}

/* The mean and a number of standard deviations. */
static inline double
PipeannSampleBound(const PipeannSample *sample, double deviations)
{
	double		mean = sample->sum / sample->n;
	double		variance = sample->sum_of_squares / sample->n - mean * mean;

	return mean + deviations * sqrt(Max(variance, 0));
}

/* One of the nearest results. */
typedef struct PipeannNearResult
{
	float		dist;			/* exact */
	uint32		result;			/* its number among the results of the run */
	bool		told;			/* it was announced as settled */
} PipeannNearResult;

typedef struct PipeannTermination
{
	bool		on;
	PipeannMetric metric;
	float		factor;			/* of order keys */
	float		deviations;		/* of the codes' error */
	PipeannNearResult nearest[PIPEANN_EARLY_RESULTS];	/* sorted */
	int			count;
	PipeannSample errors;
} PipeannTermination;

/* Whether the error of one more code is wanted. */
static inline bool
PipeannTerminationWantsError(const PipeannTermination *termination, bool anyhow)
{
	return (termination->on || anyhow) && termination->errors.n < PIPEANN_MAX_SAMPLES;
}

/*
 * The margin by the factor: in order keys, of which for cosine 1 + key is half the
 * squared distance.
 */
static inline float
PipeannTerminationFactor(const PipeannTermination *termination, float key)
{
	return termination->factor *
		(termination->metric == PIPEANN_COSINE ? 1 + key : key);
}

/* list.c */
extern void PipeannTerminationInit(PipeannTermination *termination,
								   PipeannMetric metric, int ef);
extern void PipeannTerminationFound(PipeannTermination *termination,
									float exact, uint32 result);
extern float PipeannTerminationMargin(const PipeannTermination *termination,
									  float deviations);
extern float PipeannTerminationBound(const PipeannTermination *termination);

#endif							/* PIPEANN_POOL_H */
