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

/*
 * params.c: the query's vector as searches want it. Not comparable is one that has
 * no distances; then rows come in any order.
 */
extern const float *PipeannScanQuery(IndexScanDesc scan,
									 const PipeannLayout *l,
									 bool *comparable);

/* Pages that a search keeps at hand. */
extern uint32 PipeannScanMaxPages(const PipeannLayout *l);

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

/*
 * Begin a scan. When CurrentMemoryContext is reset or deleted the row is
 * forgotten.
 */
extern void PipeannScanRowBegin(PipeannScanRow *row, IndexScanDesc scan,
								PipeannIndexView *view,
								PipeannSearch *search,
								struct PipeannPrefetch *prefetch,
								bool replica);

/* A scan looks for its next row, and has come to it. */
extern void PipeannScanRowLeave(void);
extern void PipeannScanRowArrive(PipeannScanRow *row);

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

#endif							/* PIPEANN_SCAN_ROWS_H */
