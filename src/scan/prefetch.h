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

extern void PipeannPrefetchRows(PipeannPrefetch *prefetch,
								PipeannSearch *search, uint64 taken,
								uint64 most);
extern void PipeannPrefetchEnd(Relation index, uint64 rows);

#endif							/* PIPEANN_PREFETCH_H */
