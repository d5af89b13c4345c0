/*
 * engine.h
 *		What the policies share; private to search/.
 */
#ifndef PIPEANN_ENGINE_H
#define PIPEANN_ENGINE_H

#include "base/id_set.h"
#include "search/pool.h"
#include "search/results.h"
#include "search/search.h"
#include "search/termination.h"

/* A graph page this search has asked for. */
typedef struct PageRef
{
	uint32		page;
	float		dist;			/* of the candidate it was asked for */
	bool		scored;			/* its nodes are among the results */
	bool		by_slot;		/* each when it is explored, not together: */
	uint64		slots;			/* these, until now */
	uint64		killed;			/* slots that are not */
	uint64		version;		/* of the page when it was scored */
	PipeannFrame *frame;		/* NULL once released */
} PageRef;

/* The most nodes that the entry graph gives a search. */
#define PIPEANN_MAX_ENTRY_POINTS 100

/* The most nodes whose neighbours are in one batch. */
#define PIPEANN_TOGETHER 8

/* Slots of a page that bits of a word can tell of. */
#define PIPEANN_KNOWN_SLOTS 64

/* Exact distances of nodes explored by slot, and what their codes err by. */
typedef struct PipeannBySlot
{
	uint32		n;
	double		sum;
	double		sum_of_squares;
	double		error;			/* sum of the errors */
	double		error_of_squares;
} PipeannBySlot;

struct PipeannSearch
{
	const PipeannLayout *layout;
	const PipeannCodes *codes;
	PipeannPageSource *source;
	PipeannCounters *counters;
	const float *query;
	PipeannSearchParams params;
	PipeannBounds bounds;		/* halves only */

	PipeannTermination termination;		/* on until it has gone past an early end */
	uint64		hits;			/* pages had without a read */
	uint64		reads;
	uint32		nrefs;
	uint32		nheld;			/* refs with a frame */
	uint32		nunscored;
	uint64		explored;		/* nodes with rows */
	int			nentry_points;			/* whose page-mates are no candidates yet */
	PipeannBySlot known;
	bool		started;
	bool		continued;

	/* pipe: dynamic width (PipeANN 4.2.3) */
	int			width;
	int			converged_at;	/* most candidates ever ahead of the first
								 * unread one */
	uint32		reads_in;		/* arrived while still in the pool */
	uint32		reads_out;

	/* look_ahead */
	bool		converging;
	uint32		passed_over;	/* candidate that was to be read, or INVALID_ID */

	/*
	 * From here on what has memory, which the next search uses again.
	 */
	PipeannPool pool;
	PipeannResults results;
	PipeannIdSet visited;		/* node ids with a known code distance */
	PipeannIdSet entered;		/* positions of the entry graph */
	uint32		seeds[PIPEANN_MAX_ENTRY_POINTS];	/* nodes found there */
	PipeannIdSet pages;			/* graph page -> refs[] */
	PageRef    *refs;
	uint32		refs_size;
	uint32	   *unscored;		/* refs that arrived and await scoring */
	uint32		unscored_size;

	float	   *table;			/* [nchunks][256] of code distances */
	int			table_size;		/* chunks that there is memory for */

	/* unvisited neighbours of the nodes explored together */
	uint32	   *batch_ids;
	const uint8 **batch_codes;
	float	   *batch_dists;
	PipeannCandidate *batch;	/* those of them for the pool */
	int			batch_size;
};

static inline bool
PipeannIsOn(const PipeannSearch *search, uint32 feature)
{
	return (search->params.switches & feature) != 0;
}

/* Candidates that are explored unless the search ends early. */
static inline int
PipeannListToExplore(const PipeannSearch *search)
{
	return Max(Max(search->params.ef, search->params.min_list), 1);
}

/* L: the pool reaches farther where the search may end early. */
static inline int
PipeannListLength(const PipeannSearch *search)
{
	return search->termination.on ? Max(search->params.ef, 1) :
		search->pool.length;
}

/* engine.c */

/* Ask for a candidate's page; its page-mates in the pool share it. */
extern void PipeannRequest(PipeannSearch *search, int position);

/* Ask for a node's page before there is a pool. */
extern void PipeannRequestNode(PipeannSearch *search, uint32 id, float dist);

/* Look a candidate's page up; true if it is at hand now. */
extern bool PipeannLookUpPage(PipeannSearch *search, int position);

/* A page has come. */
extern void PipeannArrive(PipeannSearch *search, PipeannFrame *frame);

/* Whether a candidate's page is at hand. */
static inline bool
PipeannIsReady(const PipeannSearch *search, const PipeannCandidate *item)
{
	const PipeannFrame *frame;

	if (item->ref == PIPEANN_NO_REF)
		return false;
	frame = search->refs[item->ref].frame;
	return frame != NULL && frame->state == PIPEANN_FRAME_READY;
}

/*
 * Whether a candidate's page is at hand, or can be had without a read; looks
 * it up once.
 */
static inline bool
PipeannIsAtHand(PipeannSearch *search, int position)
{
	const PipeannCandidate *item = &search->pool.items[position];

	if (item->ref != PIPEANN_NO_REF)
		return PipeannIsReady(search, item);
	return !item->absent && PipeannLookUpPage(search, position);
}

/* Expand a candidate whose page is at hand. */
extern void PipeannExplore(PipeannSearch *search, int position);

/*
 * The same, but its neighbours go into the batch, which has n by now, and not into
 * the pool; returns how many it has then. Positions in the pool stay.
 */
extern int	PipeannAddNeighbors(PipeannSearch *search, int position, int n);

/* Nearest unexplored candidate whose page is at hand, or -1. */
extern int	PipeannNearestReady(PipeannSearch *search);

/*
 * Score one page that has come; false when none is waiting for it. Its nodes
 * may join the pool: positions in it are not to be relied on any more.
 */
extern bool PipeannScoreOne(PipeannSearch *search);

/* Score the node in a slot; returns its exact distance. */
extern float PipeannScoreSlot(PipeannSearch *search, uint32 id,
							  const PipeannSlot *slot);

/* Have a page that has come scored: refs[at]. */
extern void PipeannAwaitScoring(PipeannSearch *search, uint32 at);

/* Learn which nodes of a page at hand have dead rows only. */
extern void PipeannLookForKilled(PipeannSearch *search, PageRef *ref);

/* Score a page's nodes now, but for slots killed (of the first 64). */
extern void PipeannScorePage(PipeannSearch *search, uint32 page,
							 const char *nodes, uint64 killed, bool join);

/* Have all nodes of the pages where a search began be candidates: entry_points.c. */
extern void PipeannSeedPages(PipeannSearch *search);

static inline bool
PipeannJoinsMates(const PipeannSearch *search)
{
	return search->reads > 0 && PipeannIsOn(search, PIPEANN_PAGE_MATES);
}

/*
 * Pages that have come are scored before anything is decided if their nodes
 * may join the pool, else when there is nothing better to do. Those of the entry
 * points need not have come: codes tell what is there. Both are candidates only
 * once something was read, since what they save is reads.
 */
static inline void
PipeannJoinPageMates(PipeannSearch *search)
{
	if (search->nentry_points > 0 && search->reads > 0)
		PipeannSeedPages(search);
	if (search->nunscored > 0 && PipeannJoinsMates(search))
		while (PipeannScoreOne(search))
			;
}

/* Add candidates batch_ids[0 .. n - 1], not visited before, to the pool. */
extern void PipeannPushBatch(PipeannSearch *search, int n);

/*
 * Put a node in the batch if it was not visited before; returns the new length.
 * About every other neighbour was, so that this is no branch: the place of one
 * that was goes to the next. There is room for all that are looked at.
 */
static inline int
PipeannBatchAdd(PipeannSearch *search, int n, uint32 id)
{
	if (id >= search->codes->ncodes)
		return n;
	search->batch_ids[n] = id;
	search->batch_codes[n] = PipeannCodeAt(search->codes, id);
	__builtin_prefetch(search->batch_codes[n]);
	return n + PipeannIdSetAdd(&search->visited, id);
}

/*
 * beam.c: candidates that were chosen together. Those that leave the pool
 * leave their beam, too.
 */

/* Choose a candidate for a beam and ask for its page. */
extern void PipeannChoose(PipeannSearch *search, int position, int beam);

/*
 * Choose the nearest width candidates that are in no beam; returns how many
 * there were.
 */
extern int	PipeannChooseNearest(PipeannSearch *search, int beam, int width);

/* Explore those of a beam whose pages are at hand; false when none is left. */
extern bool PipeannExploreBeam(PipeannSearch *search, int beam);

/* Score pages until one more comes, or wait for it. */
extern void PipeannAwaitPage(PipeannSearch *search);

/* by_slot.c */

/* The list's length while nothing is read. */
extern int	PipeannLengthInMemory(const PipeannSearch *search);

/*
 * Have the processor fetch the width nearest nodes in no beam, while nothing has
 * to be read.
 */
extern void PipeannPrefetchNearest(PipeannSearch *search, int width);

/* What is wanted of a node's page if it is resident. */
extern int	PipeannWantedSlot(const PipeannSearch *search, uint32 id);

/* A slot of a page at hand, until another of it is asked for. */
extern const PipeannSlot *PipeannSlotOf(PipeannSearch *search, PageRef *ref,
										uint32 slot);

/* Score a node that was explored of a page whose nodes are not all scored. */
extern void PipeannScoreExplored(PipeannSearch *search, PageRef *ref,
								 const PipeannCandidate *item,
								 const PipeannSlot *slot);

/* The list is explored: see whether it can be relied on. */
extern void PipeannDoubtCodes(PipeannSearch *search);

/* entry_points.c */
extern void PipeannEnter(PipeannSearch *search);

/* The policies, a file each. */
extern void PipeannRunBestFirst(PipeannSearch *search);
extern void PipeannRunPipe(PipeannSearch *search);
extern void PipeannRunStale(PipeannSearch *search);
extern void PipeannRunLookAhead(PipeannSearch *search);

/* Nodes explored in one round, unless pipeline_width says otherwise. */
#define PIPEANN_BEAM_WIDTH 8

static inline int
PipeannBeamWidth(const PipeannSearch *search)
{
	return search->params.width > 0 ? search->params.width :
		PIPEANN_BEAM_WIDTH;
}

#endif							/* PIPEANN_ENGINE_H */
