/*
 * rows.h
 *		What a scan notes about the rows of its results; private to scan/.
 */
#ifndef PIPEANN_ROWS_H
#define PIPEANN_ROWS_H

#include "scan/scan.h"

struct PipeannOnly;

/*
 * prefetch.c: ask the operating system for the table pages of the next
 * results, of at most `most`, when `taken` were returned; returns for how many
 * results it did. only is NULL unless the scan is index-only: then pages that
 * it will not read are left out.
 */
extern int	PipeannPrefetchRows(IndexScanDesc scan, const PipeannLayout *l,
								PipeannSearch *search,
								struct PipeannOnly *only, uint64 taken,
								uint64 most);

/* killed.c: nodes whose rows a scan finds dead to everybody */
typedef struct PipeannKilledRows
{
	PipeannIndexView *view;		/* NULL: nothing may be noted */
	bool		active;			/* the rows of node id are being returned */
	uint32		id;
	int			rows_left;		/* rows of the node not found dead */
	uint64		lsn;			/* of its page when the rows were read */
} PipeannKilledRows;

/* Begin a scan. False if nothing may be noted of it, and nothing be skipped. */
extern bool PipeannKilledBegin(PipeannKilledRows *killed, IndexScanDesc scan,
							   PipeannIndexView *view);

/*
 * For PipeannSearchParams: the killed nodes of a page, bit i for slot i; sets
 * *version to the page's LSN. arg is the PipeannKilledRows.
 */
extern uint64 PipeannKilledOfPage(uint32 page, const char *nodes,
								  uint64 *version, void *arg);

/* From now on rows of this result are returned, or of none if it is NULL. */
extern void PipeannKilledSetNode(PipeannKilledRows *killed,
								 const PipeannSearch *search,
								 const PipeannResult *result);

/* The row returned last is dead to everybody. */
extern void PipeannKilledNoteRow(PipeannKilledRows *killed);

#endif							/* PIPEANN_ROWS_H */
