/*
 * rows.h
 *		The rows of a build in memory, in the order of their TIDs.
 */
#ifndef PIPEANN_ROWS_H
#define PIPEANN_ROWS_H

#include "build/spool.h"

typedef struct PipeannRows
{
	PipeannVectors vectors;		/* of all rows, in the storage chosen */
	PipeannRounding *roundings; /* [n] for half precision, else NULL */
	ItemPointerData *tids;		/* [n] */
	char	   *values;			/* rows with values, or NULL if they have none */
	uint64	   *values_at;		/* [n] */
	uint32	   *hash;			/* [n] of the vector as it is stored */
	uint8	   *again;			/* [n] equal to an earlier row */
	uint32	   *number;			/* [n] the first such row; later the node */
	uint32		distinct;		/* rows that are not */
	bool		auto_storage;
} PipeannRows;

/*
 * Choose a storage, and load the spool's rows in it; find equal vectors. All
 * members call.
 */
extern void PipeannRowsLoad(PipeannTeam *team, PipeannSpool *spool,
							PipeannRows *rows);

/*
 * Give nodes numbers by which near ones follow one another, and put them and
 * their rows into c. Returns the first partition of the nodes. All members
 * call.
 */
extern PipeannClusters *PipeannRowsToNodes(PipeannTeam *team,
										   PipeannRows *rows, uint64 seed,
										   PipeannCollection *c,
										   PipeannVectors *nodes);

/* What went into a collection stays. */
extern void PipeannRowsFree(PipeannTeam *team, PipeannRows *rows);

#endif							/* PIPEANN_ROWS_H */
