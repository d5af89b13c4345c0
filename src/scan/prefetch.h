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
	uint64		taken;			/* results taken before the present one */
	uint64		until;			/* results whose pages have been asked for */
	uint64		vectors_until;	/* results whose TOAST has been asked for */
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
 * When `taken` results were taken and the next one is about to be, ask the
 * operating system for the pages of the next ones, up to `most`, unless that was
 * done.
 */
extern void PipeannPrefetchRows(PipeannPrefetch *prefetch,
								PipeannSearch *search, uint64 taken,
								uint64 most);

/*
 * toast.c: the vector of the row returned last is wanted from TOAST. Ask for
 * that of the rows whose pages were asked for.
 */
extern void PipeannPrefetchVectors(PipeannPrefetch *prefetch,
								   IndexScanDesc scan, PipeannSearch *search);

/* So many rows were wanted of a scan. */
extern void PipeannPrefetchEnd(Relation index, uint64 rows);

#endif							/* PIPEANN_PREFETCH_H */
