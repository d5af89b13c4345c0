/*
 * scan.h
 *		Index scans, and the settings that they follow.
 *
 * This room knows how the executor gets rows from a search. It must not know
 * how the index is changed.
 */
#ifndef PIPEANN_SCAN_H
#define PIPEANN_SCAN_H

#include "access/skey.h"
#include "base/parts.h"
#include "datatype/timestamp.h"
#include "index/index.h"
#include "nodes/execnodes.h"
#include "recall/recall.h"

/* Settings. */
#define PIPEANN_DEFAULT_EF_SEARCH 100

extern int	pipeann_ef_search;
extern int	pipeann_iterative_scan;
extern int	pipeann_max_scan_tuples;
extern double pipeann_scan_mem_multiplier;
extern int	pipeann_search_mode;
extern int	pipeann_pipeline_width;
extern int	pipeann_prefetch_rows;
extern int	pipeann_parts;		/* of each index, or 0 */
extern int	pipeann_part;		/* that this server keeps in memory, or 0 */

#define PIPEANN_MAX_PREFETCH 256	/* largest pipeann.prefetch_rows */

/*
 * Scans of several indexes for the nearest rows of one query, asked one after the other.
 * What is wanted of each comes nearer with the rows of the others.
 */
typedef struct PipeannDistanceBound
{
	bool		entering;		/* scans find where they begin, and return nothing */
	float		entered;		/* how near that is, of the last one */
	double		distance;		/* rows farther are not wanted */
} PipeannDistanceBound;

/*
 * A limit above scans, that is to be filled. Who has handed up nothing yet can have a
 * scan that left out rows begin anew, and return no row before all are found.
 */
typedef struct PipeannFill
{
	bool		whole;			/* scans explore all nodes before they return a
								 * row, so none comes late, and return any number */
	bool		late;			/* set by a scan at its end: it has left out
								 * rows that came late */
	int64		most_rows;		/* a scan that has looked at as many and has to go on
								 * gives up; 0: none does */
	bool		gave_up;		/* set by a scan that did */
	double		most;			/* no row is wanted whose distance is larger; or
								 * infinity */
	bool		no_numbers;		/* but those whose distance is no number */
} PipeannFill;

/*
 * tid_filter.c: rows of the table, by their TIDs, sorted; any number of them. A
 * scan returns none but those, as a search among their nodes finds them. An index
 * without codes knows nothing of this.
 */
typedef struct PipeannTidFilter
{
	uint32		n;
	const ItemPointerData *tids;
} PipeannTidFilter;

/* Of a search for another server (baton.c), what that asks for; or all zeroes. */
typedef struct PipeannStep
{
	int			ef;
	int			width;
} PipeannStep;

/*
 * What nodes of ours above a scan have it heed from when it begins on; each may be
 * NULL, and has to stay as long as the scan.
 */
typedef struct PipeannScanContext
{
	PipeannDistanceBound *bound;	/* the scan returns no row that is farther, and
									 * can be asked again when the bound has moved */
	PipeannFill *fill;
	const LimitState *limit;	/* the nearest one above */
	const PipeannTidFilter *tid_filter;
	PipeannFill bounded;		/* what fill is if a largest distance is all */
	const PipeannStep *step;
} PipeannScanContext;

/*
 * How many rows a limit wants, which knows it when it asks for the first; PG_INT64_MAX: all
 * of them. So it is WITH TIES, as the last of equally far ones may be any.
 */
static inline int64
PipeannRowsWanted(const LimitState *limit)
{
	return limit == NULL || limit->noCount || limit->limitOption != LIMIT_OPTION_COUNT ||
		limit->count > PG_INT64_MAX - limit->offset ? PG_INT64_MAX :
		limit->count + limit->offset;
}

/*
 * The place of a PipeannScanContext in the scan's order-by key (src/README, "what
 * nodes of ours tell a scan"): the function of that is never called.
 */
#define PIPEANN_SCAN_CONTEXT(key) ((key)->sk_func.fn_extra)

/* Counters and mode of this session's last scan. */
extern PipeannCounters PipeannLastCounters;
extern int	PipeannLastMode;

/* scan.c */
extern IndexScanDesc pipeannbeginscan(Relation index, int nkeys,
									  int norderbys);
extern void pipeannrescan(IndexScanDesc scan, ScanKey keys, int nkeys,
						  ScanKey orderbys, int norderbys);
extern bool pipeanngettuple(IndexScanDesc scan, ScanDirection dir);
extern void pipeannendscan(IndexScanDesc scan);
extern const PipeannCounters *PipeannScanCounters(IndexScanDesc scan);
extern PipeannSearchParams PipeannScanParams(const PipeannMeta *meta,
											 double rows);
extern int	PipeannScanList(const PipeannMeta *meta, double rows);

/* baton.c */
extern bytea *PipeannScanStep(Relation table, Relation index, const bytea *message);
extern int	PipeannScanPart(Relation table, Relation index, Datum query);

/*
 * Has the server with a part of an index, from 0, take a step of a search; its answer, or
 * NULL if there is none until then, which is set if it is 0. NULL while no library is
 * loaded that knows of servers (plan/interface.h).
 */
extern bytea *(*pipeann_ask_part) (Relation index, uint32 part, const bytea *message,
								   TimestampTz *until);

/* The parts of an index. */
static inline PipeannParts
PipeannIndexParts(const PipeannMeta *meta)
{
	return (PipeannParts) {pipeann_parts, meta->graph_pages};
}

/* The same if this server keeps one of them: part pipeann_part - 1. */
static inline PipeannParts
PipeannOwnParts(const PipeannMeta *meta)
{
	return pipeann_part > 0 ? PipeannIndexParts(meta) : (PipeannParts) {0};
}

/* Whether maintenance_work_mem holds a map of so many rows in the making. */
static inline bool
PipeannMayMapRows(double rows)
{
	return rows * sizeof(PipeannMappedRow) <= maintenance_work_mem * 1024.0;
}

#endif							/* PIPEANN_SCAN_H */
