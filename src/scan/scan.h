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
extern int	pipeann_part;		/* the part that this server keeps in memory, or 0 */

#define PIPEANN_MAX_PREFETCH 256	/* largest pipeann.prefetch_rows */

/*
 * Scans of several indexes for the nearest rows of one query, read one after the other.
 * The distance up to which rows of each are wanted shrinks with the rows of the others.
 */
typedef struct PipeannDistanceBound
{
	bool		entering;		/* scans find where they begin, and return nothing */
	float		entered;		/* how near the last scan's search begins */
	double		distance;		/* rows farther are not wanted */
} PipeannDistanceBound;

/*
 * A limit to be filled by scans. A node that has not returned a row yet can restart
 * a scan that left out rows, and have it find everything before it returns a row.
 */
typedef struct PipeannFill
{
	bool		whole;			/* scans explore all nodes before they return a
								 * row, so none comes late, and return any number */
	bool		late;			/* set by a scan at its end: it has left out
								 * rows that came late */
	int64		most_rows;		/* a scan that has looked at this many rows
								 * and has to go on gives up; 0: never */
	bool		gave_up;		/* set by a scan that did */
	double		most;			/* rows with a larger distance are not
								 * wanted; or infinity */
	bool		no_numbers;		/* but rows at NaN are wanted */
} PipeannFill;

/*
 * tid_filter.c: TIDs of rows of the table, sorted; any number of them. A scan
 * returns only these rows, found by a search among their nodes. An index
 * without codes ignores this.
 */
typedef struct PipeannTidFilter
{
	uint32		n;
	const ItemPointerData *tids;
} PipeannTidFilter;

/*
 * What our nodes above a scan tell it when it begins; each may be NULL, and
 * has to live as long as the scan.
 */
typedef struct PipeannScanContext
{
	PipeannDistanceBound *bound;	/* the scan returns no farther row, and can
									 * be read again when the bound has changed */
	PipeannFill *fill;
	const LimitState *limit;	/* the nearest one above */
	const PipeannTidFilter *tid_filter;
	PipeannFill bounded;		/* what fill points to if only a largest distance is given */
} PipeannScanContext;

/*
 * How many rows a limit wants, which it knows when it requests the first; PG_INT64_MAX:
 * all. All with WITH TIES, too, as any number of rows may tie with the last.
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

/* baton.c */
extern bytea *PipeannScanStep(Relation index, const bytea *message);
extern int	PipeannScanPart(Relation index, Datum query);

/*
 * Lets the server that has a part of an index, from 0, take a step of a search; returns
 * its answer, or NULL if there is none by *until, which is set if it is 0. The pointer
 * is NULL while no library is loaded that knows of servers (plan/interface.h).
 */
extern bytea *(*pipeann_ask_part) (Relation index, uint32 part, const bytea *message,
								   TimestampTz *until);

/* The parts of an index. */
static inline PipeannParts
PipeannIndexParts(const PipeannMeta *meta)
{
	return (PipeannParts) {pipeann_parts, meta->graph_pages, (uint32) pipeann_part - 1};
}

/* Whether a page is in the part that this server keeps in memory; without one all are. */
static inline bool
PipeannIsOwnPage(const PipeannMeta *meta, uint32 page)
{
	PipeannParts parts = PipeannIndexParts(meta);

	return parts.n == 0 || pipeann_part == 0 || PipeannPartOfPage(&parts, page) == parts.own;
}

/* Whether a map of this many rows can be made within maintenance_work_mem. */
static inline bool
PipeannMayMapRows(double rows)
{
	return rows * sizeof(PipeannMappedRow) <= maintenance_work_mem * 1024.0;
}

#endif							/* PIPEANN_SCAN_H */
