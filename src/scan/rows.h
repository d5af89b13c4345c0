/*
 * rows.h
 *		What a scan does about the rows of its results; private to scan/.
 */
#ifndef PIPEANN_ROWS_H
#define PIPEANN_ROWS_H

#include "scan/scan.h"

/*
 * prefetch.c: ask the operating system for the table pages of the results that
 * come next, of no more than `most`, when so many were taken; returns of how many.
 */
extern int	PipeannPrefetchRows(IndexScanDesc scan, PipeannSearch *search,
								uint64 taken, uint64 most);

/* killed.c: rows that a scan found dead to everybody */
typedef struct PipeannKilledRows
{
	PipeannIndexView *view;		/* NULL: it does not know any */
	bool		active;			/* there is a node of which it is to know */
	uint32		id;
	int			rows_left;		/* that are not known to be dead */
	uint64		lsn;			/* of the page as it was read */
} PipeannKilledRows;

/* False if the scan is to return dead rows as well. */
extern bool PipeannKilledBegin(PipeannKilledRows *killed, IndexScanDesc scan,
							   PipeannIndexView *view);
extern uint64 PipeannKilledOfPage(uint32 page, const char *nodes,
								  uint64 *version, void *arg);

/* The rows of a result, or none, are returned from now on. */
extern void PipeannKilledSetNode(PipeannKilledRows *killed,
								 const PipeannSearch *search,
								 const PipeannResult *result);

/* The row returned last is dead. */
extern void PipeannKilledNoteRow(PipeannKilledRows *killed);

#endif							/* PIPEANN_ROWS_H */
