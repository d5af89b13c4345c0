/*
 * prefetch.h
 *		Prefetching the table pages of the rows that a scan returns next; private
 *		to scan/.
 */
#ifndef PIPEANN_PREFETCH_H
#define PIPEANN_PREFETCH_H

#include "scan/rows.h"

#define PIPEANN_ASKED 16		/* pages that a scan knows it has asked for */

typedef struct PipeannPrefetch
{
	Relation	table;
	const PipeannLayout *layout;
	struct PipeannOnly *only;	/* of an index-only scan, else NULL */
	int			at_once;		/* rows to ask for; 0: nothing is */
	int			expected;		/* rows that are likely to be wanted */
	BlockNumber asked[PIPEANN_ASKED];
	uint32		nasked;
} PipeannPrefetch;

/*
 * Begin a scan. only is NULL unless the scan is index-only: then pages that it
 * will not read are left out.
 */
extern void PipeannPrefetchBegin(PipeannPrefetch *prefetch,
								 IndexScanDesc scan,
								 const PipeannLayout *layout,
								 struct PipeannOnly *only);

/* How many results the search may ask for before it ends. */
extern int	PipeannPrefetchEarly(const PipeannPrefetch *prefetch);

/* For PipeannSearchParams: asks for a result's rows. */
extern void PipeannPrefetchSettled(PipeannRowList rows, void *arg);

/*
 * Ask the operating system for the pages of the next results, of at most `most`,
 * when `taken` were returned; returns for how many results it did.
 */
extern int	PipeannPrefetchRows(PipeannPrefetch *prefetch,
								PipeannSearch *search, uint64 taken,
								uint64 most);

/* So many rows were wanted of a scan. */
extern void PipeannPrefetchEnd(Relation index, uint64 rows);

#endif							/* PIPEANN_PREFETCH_H */
