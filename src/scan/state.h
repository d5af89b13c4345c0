/*
 * state.h
 *		An index scan's state, and the interfaces of its parts; private to
 *		scan/.
 */
#ifndef PIPEANN_SCAN_STATE_H
#define PIPEANN_SCAN_STATE_H

#include "access/relscan.h"
#include "access/visibilitymap.h"
#include "catalog/pg_am_d.h"
#include "lib/pairingheap.h"
#include "miscadmin.h"
#include "scan/scan.h"
#include "utils/expandeddatum.h"
#include "utils/rel.h"

typedef struct PipeannFilter PipeannFilter;
typedef struct PipeannTidFilterState PipeannTidFilterState;
typedef struct PipeannLeftOut PipeannLeftOut;

/* An index-only scan. */
typedef struct PipeannOnly
{
	ExpandedObjectHeader vector;	/* of the row taken last; must be first */
	struct varlena *value;		/* the vector once it was used, else NULL */
	uint32		id;				/* of its node */
	ItemPointerData tid;		/* of the row */

	IndexScanDesc scan;
	const PipeannIndexView *view;
	MemoryContext row;			/* of the row taken last */
	PipeannColumns columns;
	Buffer		map;			/* of the visibility map */
	bool		sure;			/* VACUUM has removed no row meanwhile */
	bool		looked;			/* a vector was read from the table */
} PipeannOnly;

static inline bool
PipeannIsAllVisible(PipeannOnly *only, BlockNumber block)
{
	return only->sure &&
		VM_ALL_VISIBLE(only->scan->heapRelation, block, &only->map);
}

#define PIPEANN_ASKED 16		/* pages that a scan remembers to have prefetched */

/* Prefetching the table pages of the rows that a scan returns next. */
typedef struct PipeannPrefetch
{
	int			at_once;		/* rows to prefetch for; 0: none */
	int			first;			/* the same before the first row is taken */
	uint64		until;			/* results whose pages have been prefetched */
	BlockNumber asked[PIPEANN_ASKED];
	uint32		nasked;
} PipeannPrefetch;

typedef struct PipeannScan
{
	IndexScanDesc scan;
	MemoryContext context;		/* reset by each rescan */
	PipeannCounters counters;	/* over all rescans */

	/* everything from here on is reset by each rescan */
	PipeannScanContext from_plan;

	PipeannIndexView view;
	PipeannPageSource *source;
	PipeannSearch *search;		/* NULL before the first row is requested */
	bool		searched;		/* its first run is over */
	const float *query;
	float	   *exact;			/* [dim] a vector before rounding */
	PipeannFilter *filter;		/* NULL if there are no conditions */
	PipeannTidFilterState *tid_filter;	/* if only given rows are wanted, else NULL */
	TimestampTz until;			/* how long to wait for other servers in mode baton, or 0 */
	PipeannOnly *only;			/* of an index-only scan, else NULL */

	/* the stream of results */
	bool		exhausted;		/* the search cannot or must not go on */
	bool		late;			/* late rows were left out */
	uint64		taken;			/* results popped */
	int64		looked_at;		/* rows returned, or found not to be
								 * visible, except those dead to all */
	float		last_dist;		/* upper bound of the distance of the rows loaded last */
	float		farthest;		/* the largest distance that a row so far may
								 * have */
	float		most;			/* the order key beyond which no row is
								 * wanted, or infinity */
	bool		comparable;		/* rows have an order */
	pairingheap *measured;		/* results measured by the table's vectors, or NULL */
	PipeannPrefetch prefetch;

	/* rows of the current result */
	void	   *rows;			/* room for those of a slot */
	PipeannRowList left;		/* rows that come next */
	PipeannChain chain;			/* its rows in overflow slots */

	PipeannLeftOut *left_out;	/* rows that the index leaves out, after all others */
} PipeannScan;

/* Whether TIDs of a table name blocks, and rows that do not move. */
static inline bool
PipeannIsHeap(Relation table)
{
	return table != NULL && table->rd_rel->relam == HEAP_TABLE_AM_OID;
}

/* How many pages a search may hold. */
static inline uint32
PipeannMaxPages(const PipeannLayout *l)
{
	return (uint32) Min(pipeann_scan_mem_multiplier * work_mem * 1024.0 /
						((double) l->node_pages * BLCKSZ), (double) PG_INT32_MAX);
}

/* How many rows a scan may look at. */
static inline int64
PipeannMostToLookAt(const PipeannScan *state)
{
	const PipeannFill *fill = state->from_plan.fill;

	return fill != NULL && fill->whole ? PG_INT64_MAX : pipeann_max_scan_tuples;
}

/* baton.c */
extern void PipeannBatonBegin(PipeannScan *state, PipeannSearchParams *params);

/* stream.c */
extern void PipeannStreamBegin(PipeannScan *state,
							   PipeannSearchParams *params);
extern void PipeannStreamAdd(PipeannScan *state, const PipeannResult *result,
							 PipeannRowList rows);
extern bool PipeannStreamLoad(PipeannScan *state);
extern struct varlena *PipeannTableVector(IndexScanDesc scan,
										  const ItemPointerData *tid);

/* tid_filter.c */
extern PipeannTidFilterState *PipeannTidFilterBegin(PipeannScan *state,
													PipeannSearchParams *params);
extern bool PipeannTidFilterHas(const PipeannTidFilterState *filter,
								const ItemPointerData *tid);

#endif							/* PIPEANN_SCAN_STATE_H */
