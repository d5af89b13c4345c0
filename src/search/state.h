/*
 * state.h
 *		A search's state; private to search/.
 */
#ifndef PIPEANN_SEARCH_STATE_H
#define PIPEANN_SEARCH_STATE_H

#include <math.h>

#include "base/id_set.h"
#include "search/search.h"

/*
 * The candidate pool: the L nearest candidates in order, an overflow area after them,
 * and those dropped from both, kept so that a search can go on; and early termination.
 */

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
	int			length;			/* L: items at the front that must be explored */
	float		bound;			/* distance beyond which an item need not be explored */
	int			least;			/* items that are explored even beyond the bound */
	int			capacity;		/* length with the overflow area */
	int			head;			/* items at the front; behind them there are only
								 * some that match */
	int			matching;		/* items behind the head to be explored */
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

/* Nodes found, nearest first: a heap with its rows. */
typedef struct PipeannResults
{
	PipeannResult *items;		/* heap order only when heaped */
	uint64		count;
	uint64		size;
	bool		heaped;
	PipeannResult taken;		/* the last one popped */

	PipeannRow *rows;			/* of all of them, one after the other */
	Size		bytes;			/* of rows */
	Size		bytes_size;
} PipeannResults;

/* A graph page that this search has requested. */
typedef struct PipeannPageRef
{
	uint32		page;
	float		dist;			/* of the candidate for which it was requested */
	bool		scored;			/* its nodes are among the results */
	bool		by_node;		/* its nodes are scored one by one, each when it
								 * is explored, and not with their page */
	bool		kept;			/* not given back in this PipeannTrimPages() */
	uint32		next_unscored;	/* the next one that awaits scoring, or NO_REF */
	uint64		slots;			/* bits of the slots scored so until now */
	PipeannFrame *frame;		/* NULL once released */
} PipeannPageRef;

static inline bool
PipeannRefIsReady(const PipeannPageRef *ref)
{
	return ref->frame != NULL && ref->frame->state == PIPEANN_FRAME_READY;
}

/* The most nodes that the entry graph gives a search. */
#define PIPEANN_MAX_ENTRY_POINTS 100

/* The most nodes whose neighbours are scored in one batch. */
#define PIPEANN_BATCH_NODES 8

/* Slots of a page for which a 64-bit mask has room. */
#define PIPEANN_MASKED_SLOTS 64

/* A scan of codes: the nearest nodes that may match and are not taken yet, as a heap. */
typedef struct PipeannCodeScan
{
	bool		chosen;			/* chosen in place of a walk */
	bool		begun;
	PipeannSample errors;		/* of the codes of nodes read */
	PipeannDiscard *items;
	uint64		n;
	uint64		size;			/* items that may be kept */
	uint64		items_size;		/* items that there is memory for */
	uint64		passing;		/* nodes that may match */
	PipeannDiscard last;		/* the item taken last */
	PipeannDiscard bound;		/* nodes farther than this one are not kept */
	bool		left_out;		/* nodes beyond bound were not kept */
	bool		unordered;		/* codes say nothing: they were not read, or are newer */
} PipeannCodeScan;

/* What a policy remembers of a search. */
typedef struct PipeannPolicyState
{
	int			width;			/* of the pipe, or of the burst; 0: none yet */
	int			converged_at;	/* pipe: most candidates ever ahead of the
								 * first unread one */
	uint32		arrived;		/* pipe: reads that arrived */
	uint32		wasted;			/* pipe: reads whose candidate had left the list by then */
	bool		converging;		/* look_ahead */
	uint32		passed_over;	/* look_ahead: candidate that was to be read, or
								 * INVALID_ID */
	uint8		asked[(PIPEANN_MOST_PARTS + 7) / 8];	/* baton: bits of parts whose
														 * servers were asked */
} PipeannPolicyState;

/* How far a search has come. */
typedef enum PipeannSearchStage
{
	PIPEANN_NEW,
	PIPEANN_ENTERED,			/* entry points are candidates */
	PIPEANN_STARTED,			/* it was run at least once */
	PIPEANN_CONTINUED			/* its list was explored, and refilled */
} PipeannSearchStage;

/* Unvisited neighbours of the nodes explored together. */
typedef struct PipeannBatch
{
	uint32	   *ids;
	const uint8 **codes;
	float	   *dists;
	PipeannCandidate *items;	/* the ones that go to the pool */
	int			size;
} PipeannBatch;

/* A share of nodes by a sample of which none matches. */
#define LEAST_SHARE 1e-6

struct PipeannSearch
{
	const PipeannLayout *layout;
	const PipeannCodes *codes;
	PipeannPageSource *source;
	const float *query;
	PipeannSearchParams params;
	const void *stored_query;	/* the query of the storage's kernels */
	PipeannBounds bounds;		/* of a storage that rounds */

	PipeannTermination termination; /* on until the search has continued after an early end */
	uint64		hits;			/* pages obtained without a read */
	uint64		reads;
	uint32		nheld;			/* refs with a frame */
	uint32		unscored;		/* the ref that arrived last and awaits scoring, or NO_REF */
	uint64		explored;		/* nodes with rows that were explored */
	uint64		matching;		/* explored nodes that may be results */
	int			nentry_pages;	/* entry points whose page-mates are no
								 * candidates yet */
	PipeannSample distances;	/* exact distances of nodes scored when explored */
	PipeannSample errors;		/* errors of these nodes' codes */
	bool		has_table;		/* table[] is the query's */
	bool		has_ended;		/* found what params.ends_at looks for */
	PipeannSearchStage stage;
	double		share;			/* of all nodes that may match, by a sample */
	double		near_share;		/* of the nodes near the query that may match */
	double		stretch;		/* the list in lengths of ef: longer for candidates that
								 * do not match */
	int			most_matching;	/* matching candidates behind the list's head; 0:
								 * there is no head */
	PipeannPolicyState policy;

	/* From here on fields with memory that the next search reuses. */
	PipeannPool pool;
	PipeannResults results;
	PipeannIdSet visited;		/* node ids with a known code distance */
	PipeannIdSet entered;		/* positions of the entry graph */
	uint32		entry_points[PIPEANN_MAX_ENTRY_POINTS];
	PipeannIdSet pages;			/* graph page -> refs[] */
	PipeannPageRef *refs;		/* pages.used of them */
	uint32		refs_size;
	PipeannCodeScan code_scan;
	PipeannBatch batch;
	float	   *table;			/* [nsubvectors][256] of code distances; then [dim], the
								 * query of a quantised index */
	int			table_size;		/* numbers that there is memory for */
};

/* results.c */
extern void PipeannResultsReset(PipeannResults *results);
extern void PipeannResultsAdd(PipeannResults *results,
							  const PipeannResult *result,
							  const PipeannRowList *rows);

/* code_scan.c */
extern bool PipeannRunCodeScan(PipeannSearch *search);
extern float PipeannEnterCodeScan(PipeannSearch *search);
extern float PipeannCodeScanReadTo(const PipeannSearch *search, bool surely);

/* The estimated share of the nodes near the query that match. */
static inline double
PipeannMatchShare(const PipeannSearch *search)
{
	const PipeannCodeFilter *filter = search->params.code_filter;

	return filter == NULL ? 1 : Max(search->near_share * filter->precision, LEAST_SHARE);
}

/* Count the code pages that were read until now, for this search. */
static inline void
PipeannCountCodeReads(PipeannSearch *search)
{
	PipeannCodeLoader *loader = search->codes->loader;

	if (loader == NULL)
		return;
	search->source->counters->code_page_reads += loader->reads;
	loader->reads = 0;
}

/*
 * Whether it goes through the codes of sparse vectors. Those with hardly an
 * element in common are all about equally far apart, so that a graph does not
 * lead to the nearest, while their codes distinguish them.
 */
static inline bool
PipeannScansSparse(const PipeannSearch *search)
{
	return search->params.by_codes && PipeannIsSparse(search->layout->storage);
}

/* How many candidates a search explores (list.c). */

/* ef, or more where a part of the candidates does not match. */
static inline int
PipeannListEf(const PipeannSearch *search)
{
	return (int) (search->params.ef * search->stretch);
}

/* Candidates that are explored unless the search ends early. */
static inline int
PipeannListToExplore(const PipeannSearch *search)
{
	return Max(PipeannListEf(search), search->params.min_list);
}

/* list.c */
extern void PipeannPoolMerge(PipeannPool *pool, PipeannCandidate *items, int n);
extern void PipeannPoolDiscard(PipeannPool *pool, uint32 id, float dist);
extern void PipeannTerminationInit(PipeannTermination *termination,
								   PipeannMetric metric, int ef);
extern void PipeannTerminationFound(PipeannTermination *termination,
									float exact, uint32 result);
extern float PipeannTerminationMargin(const PipeannTermination *termination,
									  float deviations);
extern void PipeannListBegin(PipeannSearch *search);
extern void PipeannListSetLength(PipeannSearch *search);
extern bool PipeannListIsBeyond(PipeannSearch *search);
extern void PipeannListSetEf(PipeannSearch *search, int ef);
extern void PipeannListSetBound(PipeannSearch *search);
extern void PipeannListForgetEarlyEnd(PipeannSearch *search);
extern bool PipeannListRefill(PipeannSearch *search);

/*
 * Pages at hand, the scoring of their nodes, and exploring candidates one by one and in
 * beams, which are chosen together. Candidates that leave the pool leave their beam, too.
 */

static inline int
PipeannBatchAddOne(PipeannSearch *search, int n, uint32 id, bool in_memory)
{
	if (id >= search->codes->ncodes)
		return n;
	search->batch.ids[n] = id;
	if (in_memory)
	{
		search->batch.codes[n] = PipeannCodeInMemory(search->codes, id);
		__builtin_prefetch(search->batch.codes[n]);
	}
	return n + PipeannIdSetAdd(&search->visited, id);
}

/*
 * Put nodes in the batch that were not visited before; returns the new length.
 * About every other neighbour was, so there is no branch: the next one
 * overwrites one that was. There is room for all that are looked at. Codes
 * that may not be in memory are gathered when the batch is measured.
 */
static inline int
PipeannBatchAdd(PipeannSearch *search, int n, const uint32 *ids, int count)
{
	if (likely(search->codes->loader == NULL))
		for (int i = 0; i < count; i++)
			n = PipeannBatchAddOne(search, n, ids[i], true);
	else
		for (int i = 0; i < count; i++)
			n = PipeannBatchAddOne(search, n, ids[i], false);
	return n;
}

/* Whether a live node may be a result. */
static inline bool
PipeannIsWanted(const PipeannSearch *search, uint32 id,
				const PipeannSlot *slot)
{
	const PipeannSearchParams *params = &search->params;

	if (params->matches == NULL)
		return true;
	if (params->code_filter != NULL && id < search->codes->ncodes &&
		!PipeannCodePasses(search->codes, params->code_filter, id))
		return false;
	return params->matches(id, slot, params->arg);
}

/*
 * Whether the nodes of pages at hand are candidates of a walk. They are only
 * once something was read, since they save nothing but reads.
 */
static inline bool
PipeannWantsPageMates(const PipeannSearch *search)
{
	return search->reads > 0 && !search->code_scan.begun;
}

/* The exact distance of a node by what its slot has. */
static inline float
PipeannSlotDistance(const PipeannSearch *search, const PipeannSlot *slot)
{
	const PipeannLayout *l = search->layout;

	return PipeannExactDistance(l, search->stored_query,
								PipeannSlotVector(l, slot), l->storage, slot->aux);
}

/* Which slot of a node's page is wanted if it is resident, or all. */
static inline int
PipeannWantedSlot(const PipeannSearch *search, uint32 id)
{
	return !search->params.by_page && search->reads == 0 ?
		(int) PipeannIdSlot(search->layout, id) : PIPEANN_ALL_SLOTS;
}

extern bool PipeannLookUpPage(PipeannSearch *search, int position);

/* Whether a candidate's page is at hand. */
static inline bool
PipeannIsReady(const PipeannSearch *search, const PipeannCandidate *item)
{
	return item->ref != PIPEANN_NO_REF && PipeannRefIsReady(&search->refs[item->ref]);
}

/* A page that the search has requested, or NULL. */
static inline PipeannPageRef *
PipeannRefOfPage(const PipeannSearch *search, uint32 page)
{
	uint32		at;

	return PipeannIdSetGet(&search->pages, page, &at) ? &search->refs[at] : NULL;
}

/*
 * Set the fields of a new candidate that are not known yet: its page, and
 * where that is in the page table if it is at hand or on its way.
 */
static inline void
PipeannSetPage(PipeannSearch *search, PipeannCandidate *item)
{
	uint32		at;

	item->page = PipeannIdPage(search->layout, item->id);
	if (PipeannIdSetGet(&search->pages, item->page, &at) &&
		search->refs[at].frame != NULL)
		item->ref = at;
}

/* Whether a slot's bit is set. */
static inline bool
PipeannHasSlotBit(uint64 bits, uint32 slot)
{
	return slot < PIPEANN_MASKED_SLOTS && ((bits >> slot) & 1);
}

/* Whether more pages are at hand or on their way than the search may keep. */
static inline bool
PipeannHoldsTooMany(const PipeannSearch *search)
{
	return search->nheld > search->params.max_pages;
}

extern void PipeannTrimPages(PipeannSearch *search, uint32 room);

/*
 * Trim pages if the search holds too many. Nodes may join the pool: positions
 * in it are no longer valid.
 */
static inline void
PipeannKeepLimit(PipeannSearch *search, uint32 room)
{
	if (unlikely(PipeannHoldsTooMany(search)))
		PipeannTrimPages(search, room);
}

/* pages.c */
extern void PipeannMakeTable(PipeannSearch *search);
extern void PipeannBatchToPool(PipeannSearch *search, int n);
extern void PipeannAddEntryPages(PipeannSearch *search);
extern float PipeannScoreSlot(PipeannSearch *search, uint32 id,
							  const PipeannSlot *slot, bool wanted);
extern bool PipeannScoreNext(PipeannSearch *search);
extern void PipeannAwaitPage(PipeannSearch *search);
extern void PipeannNoteExplored(PipeannSearch *search, PipeannPageRef *ref,
								const PipeannCandidate *item,
								const PipeannSlot *slot);
extern void PipeannScoreRest(PipeannSearch *search);
extern void PipeannRequestPageOf(PipeannSearch *search, uint32 id, float dist);
extern void PipeannNotePage(PipeannSearch *search, PipeannFrame *frame);
extern void PipeannStartReads(PipeannSearch *search);
extern const PipeannSlot *PipeannGetSlot(PipeannSearch *search,
										 PipeannPageRef *ref, uint32 slot);

/*
 * Make the nodes of pages at hand candidates, if that is wanted: to be called
 * before anything is decided. If not, pages are scored when there is nothing
 * better to do.
 */
static inline void
PipeannAddPageMates(PipeannSearch *search)
{
	if (search->nentry_pages > 0 && search->reads > 0)
		PipeannAddEntryPages(search);
	if (search->unscored != PIPEANN_NO_REF && PipeannWantsPageMates(search))
		while (PipeannScoreNext(search))
			;
}

/* pipeline_width, or else a policy's own. */
static inline int
PipeannWidth(const PipeannSearch *search, int own)
{
	return search->params.width > 0 ? search->params.width : own;
}

#endif							/* PIPEANN_SEARCH_STATE_H */
