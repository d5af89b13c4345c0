/*
 * partition.h
 *		Cutting a set of vectors into small sets of near ones (PiPNN, section 3).
 *
 * Leaders are sampled, and each vector goes to several of the nearest leaders:
 * so near vectors meet in one set or another although borders run between
 * them. A set that is too large is cut in the same way.
 */
#ifndef PIPEANN_PARTITION_H
#define PIPEANN_PARTITION_H

#include "graph/fixed.h"
#include "graph/reservoir.h"

/* A leaf has at most so many vectors. */
#define PIPEANN_LEAF 512

/*
 * The most leaders of a set, of vectors of so many dimensions: so many that
 * their panels stay in the processor's caches.
 */
#define PIPEANN_MAX_LEADERS 1000
#define PIPEANN_LEADER_BYTES (4 * 1024 * 1024)

static inline uint32
PipeannMaxLeaders(int dim)
{
	Size		fit = PIPEANN_LEADER_BYTES / (dim * sizeof(int16));

	return (uint32) Min(fit, PIPEANN_MAX_LEADERS);
}

/* The most leaders that a vector goes to. */
#define PIPEANN_MAX_FANOUT 16

/* Leaders, as panels of columns. */
typedef struct PipeannLeaders
{
	uint32		n;
	int16	   *panels;
	int32	   *half_norm;		/* [n], and room for whole panels */
} PipeannLeaders;

/* Groups of members: those of group g are ids[starts[g] .. starts[g + 1] - 1]. */
typedef struct PipeannGroups
{
	uint32		n;
	uint32	   *starts;			/* [n + 1] */
	uint32	   *ids;
} PipeannGroups;

/* Work space for leaves of one member, whose reservoirs have so many places. */
typedef struct PipeannLeafSpace PipeannLeafSpace;

extern void PipeannPartition(const PipeannFixed *f, const uint32 *ids, uint32 n,
							 int fanout, int nearest, uint64 seed,
							 PipeannReservoirs *r);

/* leaf.c */
extern PipeannLeafSpace *PipeannLeafSpaceNew(int dim, int nearest, int places);
extern void PipeannLeafSpaceFree(PipeannLeafSpace *space);
extern void PipeannLeaf(PipeannLeafSpace *space, const PipeannFixed *f,
						const uint32 *ids, int n, PipeannReservoirs *r);

#endif							/* PIPEANN_PARTITION_H */
