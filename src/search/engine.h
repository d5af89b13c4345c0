/*
 * engine.h
 *		What the policies share; private to search/.
 */
#ifndef PIPEANN_ENGINE_H
#define PIPEANN_ENGINE_H

#include "search/idset.h"
#include "search/pool.h"
#include "search/results.h"
#include "search/search.h"

/* A graph page this search has asked for. */
typedef struct PageRef
{
	uint32		page;
	float		dist;			/* of the candidate it was asked for */
	bool		scored;			/* its nodes are among the results */
	uint64		killed;			/* slots that are not */
	uint64		version;		/* of the page when it was scored */
	PipeannFrame *frame;		/* NULL once released */
} PageRef;

struct PipeannSearch
{
	const PipeannLayout *layout;
	const PipeannCodes *codes;
	PipeannPageSource *source;
	PipeannCounters *counters;
	const float *query;
	PipeannSearchParams params;
	float	   *table;			/* [nchunks][256] of code distances */

	PipeannPool pool;
	PipeannIdSet visited;		/* node ids with a known code distance */
	PipeannIdSet pages;			/* graph page -> refs[] */
	PageRef    *refs;
	uint32		nrefs;
	uint32		refs_size;
	uint32		nheld;			/* refs with a frame */
	uint32	   *unscored;		/* refs that arrived and await scoring */
	uint32		nunscored;
	uint32		unscored_size;
	PipeannResults results;
	uint64		explored;		/* nodes with rows */
	bool		started;

	/* pipe: dynamic width (PipeANN 4.2.3) */
	int			width;
	int			converged_at;	/* most candidates ever ahead of the first
								 * unread one */
	uint32		reads_in;		/* arrived while still in the pool */
	uint32		reads_out;

	/* one node's unvisited neighbours */
	uint32	   *batch_ids;
	const uint8 **batch_codes;
	float	   *batch_dists;
	int			batch_size;
};

/* engine.c */

/* Ask for a candidate's page; its page-mates in the pool share it. */
extern void PipeannRequest(PipeannSearch *search, int position);

/* Ask for a page before there is a pool. */
extern void PipeannRequestPage(PipeannSearch *search, uint32 page, float dist);

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

/* Expand a candidate whose page is at hand. */
extern void PipeannExplore(PipeannSearch *search, int position);

/* Nearest unexplored candidate whose page is at hand, or -1. */
extern int	PipeannNearestReady(PipeannSearch *search);

/* Score one page that has come; false when none is waiting for it. */
extern bool PipeannScoreOne(PipeannSearch *search);

/* Score a page's nodes now, but for slots killed (of the first 64). */
extern void PipeannScorePage(PipeannSearch *search, uint32 page,
							 const char *nodes, uint64 killed);

/* Add candidates batch_ids[0 .. n - 1], not visited before, to the pool. */
extern void PipeannPushBatch(PipeannSearch *search, int n);

/* Put a node not visited before in the batch; returns the new length. */
static inline int
PipeannBatchAdd(PipeannSearch *search, int n, uint32 id)
{
	if (id >= search->codes->ncodes ||
		!PipeannIdSetAdd(&search->visited, id))
		return n;
	search->batch_ids[n] = id;
	search->batch_codes[n] = PipeannCodeAt(search->codes, id);
	__builtin_prefetch(search->batch_codes[n]);
	return n + 1;
}

/* entry.c */
extern void PipeannEnter(PipeannSearch *search);

/* pipe.c, best_first.c */
extern void PipeannRunPipe(PipeannSearch *search);
extern void PipeannRunBestFirst(PipeannSearch *search);

#endif							/* PIPEANN_ENGINE_H */
