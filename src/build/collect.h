/*
 * collect.h
 *		A table's vectors in memory, as a build gathers them.
 */
#ifndef PIPEANN_COLLECT_H
#define PIPEANN_COLLECT_H

#include "graph/graph.h"
#include "index/index.h"

typedef struct PipeannDuplicate
{
	ItemPointerData tid;
	uint32		next;			/* in dups[], or PIPEANN_INVALID_ID */
} PipeannDuplicate;

typedef struct PipeannCollection
{
	int			dim;
	PipeannMetric metric;
	bool		auto_storage;	/* storage may still become wider */
	PipeannStorage storage;
	bool		unfit;			/* halves are not for all vectors seen */
	bool		lost;			/* but others were rounded to them */
	bool		few_twins;		/* too many that halves do not tell apart are
								 * a reason, too */
	Size		stride;
	float		min;			/* of all elements seen (auto_storage) */
	float		max;

	uint32		n;				/* distinct vectors */
	uint32		size;
	char	   *data;			/* [size] of stride bytes */
	PipeannRounding *roundings;	/* [size] of halves, else NULL */
	double	   *norms;			/* [size] */
	double		max_norm;
	ItemPointerData *tids;		/* [size] each one's first row */
	uint32	   *dup_heads;		/* [size] its other rows, in dups[] */

	PipeannDuplicate *dups;
	uint32		ndups;
	uint32		dups_size;

	uint32	   *table;			/* hash of equal vectors: numbers, or INVALID */
	uint32		table_mask;
	char	   *scratch;		/* one vector as stored */

	bool		noticed;		/* said that memory is over the limit */
} PipeannCollection;

/*
 * storage may be PIPEANN_STORAGE_AUTO: bytes if they hold all vectors, else halves
 * if those may be taken and will do for all, else floats.
 */
extern void PipeannCollectionInit(PipeannCollection *c, int dim,
								  PipeannMetric metric,
								  PipeannStorage storage, bool halves);

/*
 * Add a row; returns the number of its vector. known is what a vector that is
 * rounded already has lost, else NULL. Nothing more is added once c->lost.
 */
extern uint32 PipeannCollectionAdd(PipeannCollection *c, const float *x,
								   double norm, const PipeannRounding *known,
								   const ItemPointerData *tid);

/* Add a row of vector i. */
extern void PipeannCollectionAddTid(PipeannCollection *c, uint32 i,
									const ItemPointerData *tid);

/* Bytes in use. */
extern Size PipeannCollectionMemory(const PipeannCollection *c);

/* The vectors as the graph sees them; aux is allocated. */
extern void PipeannCollectionVectors(const PipeannCollection *c,
									 PipeannVectors *vectors);

/* Rows of vector i beyond its first. */
extern uint32 PipeannCollectionExtraTids(const PipeannCollection *c, uint32 i);

/* When all rows are in: free the hash table, choose the storage. */
extern void PipeannCollectionFinish(PipeannCollection *c);

extern void PipeannCollectionFree(PipeannCollection *c);

#endif							/* PIPEANN_COLLECT_H */
