/*
 * tid_filter.c
 *		TID filters: scans among rows of the table that are given by their TIDs.
 *
 * Conditions on columns that the index knows nothing of may be answered by other
 * indexes, whose answer is a set of TIDs. The search scans the codes of these rows
 * and no others. Rows of which no node is known, as they came after the map of rows
 * was made, are compared by their vectors in the table. Where these are so many that
 * it takes longer than to find them among all rows, as there is no map while VACUUM
 * removes rows, the search goes through the nearest of all, and their TIDs tell which
 * of them are wanted.
 */
#include "postgres.h"

#include <math.h>

#include "access/relscan.h"
#include "access/tableam.h"
#include "executor/tuptable.h"
#include "base/bits.h"
#include "miscadmin.h"
#include "scan/tid_filter.h"
#include "scan/only.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* A row of which no node is known, as far as it is from the query. */
typedef struct Unknown
{
	float		dist;
	ItemPointerData tid;
} Unknown;

struct PipeannTidFilterState
{
	const PipeannTidFilter *rows;
	uint8	   *nodes;			/* a bit for each node */
	uint32		nids;			/* bits that there are */
	uint8	   *nodeless;		/* a bit for each row that has no node here */
	uint32		nunknown;
	uint32		taken;			/* of these */
	Unknown    *unknown;		/* nearest first */
	PipeannRow	row;			/* of the one that was taken last */
};

/*
 * Of n unknown rows among N nodes a search for the nearest ten comes to about
 * 10 * N / n others, and each costs so many times what one in the table does.
 */
#define NEAREST 10.0
#define NODE_COST 16.0

static bool
IsOfThem(uint32 id, const PipeannSlot *slot, void *arg)
{
	const PipeannTidFilterState *filter = arg;

	(void) slot;
	return id < filter->nids && PipeannHasBit(filter->nodes, id);
}

/*
 * Take the nodes out of ids, each once, and the rows that have none. Such a row may
 * have joined one of these nodes since: it is not to come twice.
 */
static uint32
TakeNodes(PipeannTidFilterState *filter, uint32 *ids, uint32 unknown)
{
	uint32		n = 0;

	filter->unknown = MemoryContextAllocHuge(CurrentMemoryContext,
											 mul_size((Size) unknown + 1,
													  sizeof(Unknown)));
	for (uint32 i = 0; i < filter->rows->n; i++)
	{
		uint32		id = ids[i];

		if (id >= filter->nids)
		{
			PipeannSetBit(filter->nodeless, i);
			filter->unknown[filter->nunknown++].tid = filter->rows->tids[i];
		}
		else if (!PipeannHasBit(filter->nodes, id))
		{
			PipeannSetBit(filter->nodes, id);
			ids[n++] = id;
		}
	}
	return n;
}

static int
CompareUnknown(const void *a, const void *b)
{
	float		x = ((const Unknown *) a)->dist;
	float		y = ((const Unknown *) b)->dist;

	return x < y ? -1 : x > y ? 1 : 0;
}

/*
 * The distance of a vector of the table, as the search would have it. False if the
 * index cannot have the vector.
 */
static bool
Measure(const PipeannLayout *l, const float *query, const float *x, float *dist)
{
	double		norm = PipeannNorm(x, l->dim);

	if (!PipeannIsIndexable(l->metric, norm))
		return false;
	*dist = PipeannExactDistance(l, query, x, PIPEANN_FLOAT4,
								 PipeannAux(l->metric, norm, 0));
	return true;
}

/*
 * Measure the rows of which no node is known. Those that the snapshot does not see
 * are left out, and those that the index cannot have.
 */
static void
MeasureUnknown(IndexScanDesc scan, PipeannTidFilterState *filter,
			   const PipeannLayout *l, const float *query)
{
	float	   *x = palloc(mul_size(l->dim, sizeof(float)));
	uint32		n = 0;

	for (uint32 i = 0; i < filter->nunknown; i++)
	{
		Unknown    *row = &filter->unknown[i];

		CHECK_FOR_INTERRUPTS();
		if (PipeannTableVector(scan, &row->tid, l->dim, x) &&
			Measure(l, query, x, &row->dist))
			filter->unknown[n++] = *row;
	}
	filter->nunknown = n;
	qsort(filter->unknown, n, sizeof(Unknown), CompareUnknown);
	pfree(x);
}

static uint32
CountUnknown(const PipeannTidFilterState *filter, const uint32 *ids)
{
	uint32		unknown = 0;

	for (uint32 i = 0; i < filter->rows->n; i++)
		unknown += ids[i] >= filter->nids;
	return unknown;
}

/*
 * Find the nodes of the rows, in CurrentMemoryContext, and set a search's parameters
 * by them. Rows of which no node is known are read from the table.
 */
PipeannTidFilterState *
PipeannTidFilterBegin(IndexScanDesc scan, const PipeannTidFilter *rows,
					  PipeannIndexView *view, const float *query,
					  PipeannSearchParams *params)
{
	PipeannTidFilterState *filter = palloc0(sizeof(PipeannTidFilterState));
	uint32	   *ids = MemoryContextAllocHuge(CurrentMemoryContext,
											 mul_size((Size) rows->n + 1,
													  sizeof(uint32)));
	uint32		unknown;

	filter->rows = rows;
	PipeannFindNodes(view, rows, ids);
	filter->nids = view->codes.ncodes;
	filter->nodeless = PipeannNoBits(rows->n);
	unknown = CountUnknown(filter, ids);
	if ((double) unknown * unknown > NEAREST * NODE_COST * filter->nids)
	{
		pfree(ids);
		return filter;
	}
	filter->nodes = PipeannNoBits(filter->nids);
	params->nwanted_nodes = TakeNodes(filter, ids, unknown);
	params->wanted_nodes = ids;
	params->matches = IsOfThem;
	params->matches_arg = filter;
	MeasureUnknown(scan, filter, &view->meta.layout, query);
	return filter;
}

static int
CompareTids(const void *a, const void *b)
{
	return ItemPointerCompare(unconstify(ItemPointerData *, (const ItemPointerData *) a),
							  unconstify(ItemPointerData *, (const ItemPointerData *) b));
}

/* Whether a row of a node is among those that are wanted of it. */
bool
PipeannTidFilterHas(const PipeannTidFilterState *filter, const ItemPointerData *tid)
{
	const PipeannTidFilter *rows = filter->rows;
	const ItemPointerData *found = bsearch(tid, rows->tids, rows->n,
										   sizeof(ItemPointerData),
										   CompareTids);

	return found != NULL &&
		!PipeannHasBit(filter->nodeless, (uint32) (found - rows->tids));
}

/*
 * How far the nearest row is of which no node is known; infinite if there is none.
 */
float
PipeannTidFilterNextUnknown(const PipeannTidFilterState *filter)
{
	return filter == NULL || filter->taken == filter->nunknown ? INFINITY :
		filter->unknown[filter->taken].dist;
}

/* Take that row if it is no farther than this; else a list without rows. */
PipeannRowList
PipeannTidFilterTakeUnknown(PipeannTidFilterState *filter, float farthest, float *dist)
{
	PipeannRowList list = {.rows = &filter->row,.bytes = sizeof(PipeannRow)};

	if (filter->taken == filter->nunknown ||
		filter->unknown[filter->taken].dist > farthest)
		return list;
	*dist = filter->unknown[filter->taken].dist;
	filter->row.tid = filter->unknown[filter->taken++].tid;
	filter->row.info = sizeof(PipeannRow);
	list.n = 1;
	return list;
}
