/*
 * rows.h
 *		What a scan notes about the rows of its results; private to scan/.
 */
#ifndef PIPEANN_SCAN_ROWS_H
#define PIPEANN_SCAN_ROWS_H

#include "scan/scan.h"

#include "access/relscan.h"
#include "catalog/pg_am_d.h"
#include "utils/rel.h"

/* Whether TIDs of a table name blocks, and rows that do not move. */
static inline bool
PipeannIsHeap(Relation table)
{
	return table != NULL && table->rd_rel->relam == HEAP_TABLE_AM_OID;
}

struct PipeannPrefetch;

/* vector.c: the row that a scan has come to */
typedef struct PipeannScanRow
{
	IndexScanDesc scan;
	PipeannIndexView *view;
	PipeannSearch *search;
	struct PipeannPrefetch *prefetch;
	bool		replica;		/* the packing may be replaced */
	AttrNumber	column;			/* of the vector in the table */
	bool		exact;			/* slots hold vectors to the last bit */
	uint32		id;				/* the row's node */
	MemoryContextCallback callback;
} PipeannScanRow;

/* start.c: nodes whose rows a scan finds dead to everybody */
typedef struct PipeannKilledRows
{
	PipeannIndexView *view;		/* NULL: nothing may be noted */
	bool		active;			/* the rows of node id are being returned */
	uint32		id;
	int			rows_left;		/* rows of the node not found dead */
	uint64		lsn;			/* of its page when the rows were read */
} PipeannKilledRows;

/* vector.c */
extern void PipeannScanRowBegin(PipeannScanRow *row, IndexScanDesc scan,
								PipeannIndexView *view,
								PipeannSearch *search,
								struct PipeannPrefetch *prefetch,
								bool replica);
extern void PipeannScanRowIs(PipeannScanRow *row);

/* start.c */
extern void PipeannKilledSetNode(PipeannKilledRows *killed,
								 const PipeannSearch *search,
								 const PipeannResult *result);
extern void PipeannKilledNoteRow(PipeannKilledRows *killed);

#endif							/* PIPEANN_SCAN_ROWS_H */
