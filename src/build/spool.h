/*
 * spool.h
 *		A table's vectors in temporary files, one of each process that scans.
 */
#ifndef PIPEANN_SPOOL_H
#define PIPEANN_SPOOL_H

#include "base/team.h"
#include "build/build.h"
#include "access/tupdesc.h"
#include "storage/buffile.h"

/* What is known of all rows, or of those of one process. */
typedef struct PipeannSpoolStats
{
	uint64		rows;			/* in the spool */
	uint64		bytes;			/* that these take there */
	double		heap_tuples;	/* scanned */
	bool		broken_hot_chain;	/* as ii_BrokenHotChain */
	bool		left_out;		/* a row, that cannot be indexed */
	bool		fits[PIPEANN_NUM_STORAGE];	/* a storage suits all vectors */
	bool		negative_zeros; /* a vector has an element -0 */
	double		max_norm;
	PipeannRowSizes sizes;		/* if rows have values */
} PipeannSpoolStats;

/*
 * A vector in the spool, followed by its elements and, if rows have values, by
 * the row.
 */
typedef struct PipeannSpoolRow
{
	double		norm;
	ItemPointerData tid;
	uint8		form;			/* PipeannStorage that holds it exactly */
} PipeannSpoolRow;

typedef struct PipeannSpool
{
	int			dim;
	PipeannMetric metric;
	PipeannStorage wanted;		/* option, PIPEANN_STORAGE_AUTO too */
	BufFile    *file;			/* this process's */
	PipeannSpoolStats stats;	/* of this process; of all, when finished */
	PipeannColumns columns;		/* of the index */
	uint32	   *starts;			/* [nblocks + 1] rows before each heap block */
	uint64	   *bytes;			/* [nblocks + 1] of those rows with values */
	BlockNumber nblocks;
	char	   *scratch;		/* one vector */
	PipeannRow *row;			/* one row with values */
	MemoryContext row_context;	/* reset for each row */
} PipeannSpool;

/*
 * Prepare to scan a table of so many blocks. All members call.
 */
extern void PipeannSpoolInit(PipeannTeam *team, PipeannSpool *s,
							 PipeannColumns columns, int dim,
							 PipeannMetric metric,
							 PipeannStorage wanted, BlockNumber nblocks);

/*
 * Add a row of all the index's columns, if it can be indexed. Errors if a storage
 * that was chosen does not suit it, or its values are too long.
 */
extern bool PipeannSpoolAdd(PipeannSpool *s, Datum *values, bool *isnull,
							const ItemPointerData *tid);

/* After the scan: stats and starts become those of all. All members call. */
extern void PipeannSpoolFinish(PipeannTeam *team, PipeannSpool *s);

/*
 * Read this process's rows again: calls take(row, x, place, arg) for each, with
 * its elements as floats, and its place by TID among those of all processes.
 */
typedef struct PipeannSpoolPlace
{
	uint32		number;
	uint64		at;				/* bytes of the rows with values before it */
	const PipeannRow *row;		/* with values, or NULL */
} PipeannSpoolPlace;

typedef void (*PipeannSpoolTake) (const PipeannSpoolRow *row, const float *x,
								  const PipeannSpoolPlace *place, void *arg);

extern void PipeannSpoolRead(PipeannSpool *s, PipeannSpoolTake take,
							 void *arg);

extern void PipeannSpoolFree(PipeannTeam *team, PipeannSpool *s);

#endif							/* PIPEANN_SPOOL_H */
