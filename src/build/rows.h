/*
 * rows.h
 *		Rows, from wherever they come, and nodes made of them; private to build/.
 */
#ifndef PIPEANN_BUILD_ROWS_H
#define PIPEANN_BUILD_ROWS_H

#include "build/nodes.h"

/* ---------- where rows come from ---------- */

typedef struct PipeannSourceRow
{
	uint32		number;			/* of its vector among all */
	double		norm;
	ItemPointerData tid;
	const PipeannRounding *rounding;	/* of a vector rounded before, or NULL */
	const PipeannRow *row;		/* with values, or NULL */
	uint64		at;				/* bytes of the rows with values before it */
} PipeannSourceRow;

/* x is NULL for another row of a vector: its first row came before. */
typedef void (*PipeannTakeRow) (const PipeannSourceRow *row, const float *x,
								void *arg);

/*
 * The spool of a table (build.c), or the pages of an index (load.c). It can be
 * read again; each member of a team reads a part.
 */
typedef struct PipeannRowSource PipeannRowSource;

struct PipeannRowSource
{
	int			dim;
	PipeannMetric metric;
	PipeannStorage wanted;		/* PIPEANN_STORAGE_AUTO too */
	bool		rounded;		/* vectors come in half precision */
	uint32		n;				/* vectors */
	uint32		more;			/* rows beyond one for each */
	bool		fits[PIPEANN_NUM_STORAGE];	/* a storage suits all vectors */
	double		max_norm;
	bool		has_values;
	uint64		value_bytes;
	void		(*read) (PipeannRowSource *source, PipeannTakeRow take,
						 void *arg);
};

/* ---------- rows.c: rows in the order of their source ---------- */

/* Another row of a vector that the source has only once. */
typedef struct PipeannMoreRow
{
	uint32		of;
	ItemPointerData tid;
	uint64		values_at;
} PipeannMoreRow;

typedef struct PipeannRows
{
	PipeannVectors vectors;		/* of all rows, in the storage chosen */
	PipeannRounding *roundings; /* [n] for half precision, else NULL */
	ItemPointerData *tids;		/* [n] */
	char	   *values;			/* rows with values, or NULL if they have none */
	uint64	   *values_at;		/* [n] */
	PipeannMoreRow *more;		/* by `of` */
	uint32		nmore;
	uint32	   *hash;			/* [n] of the vector as it is stored */
	uint8	   *again;			/* [n] equal to an earlier row */
	uint32	   *number;			/* [n] the first such row; later the node */
	uint32		distinct;		/* rows that are not */
} PipeannRows;

extern void PipeannRowsLoad(PipeannTeam *team, PipeannRowSource *source,
							PipeannRows *rows);
extern void PipeannRowsToNodes(PipeannTeam *team, const PipeannRows *rows,
							   PipeannNodes *nodes);
extern void PipeannRowsFree(PipeannTeam *team, PipeannRows *rows);

#endif							/* PIPEANN_BUILD_ROWS_H */
