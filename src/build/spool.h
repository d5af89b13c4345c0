/*
 * spool.h
 *		A table's vectors in temporary files, one of each process that scans;
 *		private to build/.
 */
#ifndef PIPEANN_BUILD_SPOOL_H
#define PIPEANN_BUILD_SPOOL_H

#include "build/rows.h"
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

typedef struct PipeannSpool
{
	PipeannRowSource source;	/* of all rows, when finished */
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

extern void PipeannSpoolInit(PipeannTeam *team, PipeannSpool *s,
							 PipeannColumns columns, int dim,
							 PipeannMetric metric,
							 PipeannStorage wanted, BlockNumber nblocks);
extern bool PipeannSpoolAdd(PipeannSpool *s, Datum *values, bool *isnull,
							const ItemPointerData *tid);
extern void PipeannSpoolFinish(PipeannTeam *team, PipeannSpool *s);
extern void PipeannSpoolFree(PipeannTeam *team, PipeannSpool *s);

#endif							/* PIPEANN_BUILD_SPOOL_H */
