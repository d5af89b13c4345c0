/*
 * leaf.h
 *		The nearest candidates of each node, in different directions (PiPNN,
 *		HashPrune), and the leaves in which they are found.
 *
 * A node's reservoir has places for a fixed number of candidates. Of those
 * with the same hash, which lie in the same direction, it keeps the nearest;
 * of these the nearest that fit. So what it holds in the end does not depend on the
 * order in which candidates come, nor on the process that offers them; and reservoirs
 * that saw different candidates can be merged. Ties go to the lower id.
 */
#ifndef PIPEANN_LEAF_H
#define PIPEANN_LEAF_H

#include "base/team.h"
#include "graph/fixed.h"

/* The most vectors of a leaf. */
#define PIPEANN_LEAF 512

/* The hash of an empty place. */
#define PIPEANN_NO_HASH PG_UINT16_MAX

/* Places that are searched together. */
#define PIPEANN_RESERVOIR_GROUP 8

typedef struct PipeannReservoirs
{
	uint32		n;
	int			places;			/* of each, a multiple of the group */
	char	   *data;			/* [n] of ids, hashes and distances */
	uint16	   *bound;			/* [n] distance of the farthest if full */
	uint8	   *locks;			/* [n] taken while one is changed */
	bool		shared;			/* between processes */
	const uint32 *slot;			/* [nodes] of a node's reservoir; NULL: by the
								 * node's number, from `first` on */
	uint32		first;
} PipeannReservoirs;

static inline Size
PipeannPlacesSize(int places)
{
	return (Size) places * (sizeof(uint32) + 2 * sizeof(uint16));
}

/* Bytes of one reservoir. */
static inline Size
PipeannReservoirMemory(int places)
{
	return PipeannPlacesSize(places) + sizeof(uint16) + 1;
}

/* The reservoir of a node. */
static inline uint32
PipeannReservoirOf(const PipeannReservoirs *r, uint32 node)
{
	return r->slot != NULL ? r->slot[node] : node - r->first;
}

/*
 * The distance beyond which a node's reservoir wants nothing, as it is just
 * now.
 */
static inline uint16
PipeannReservoirBound(const PipeannReservoirs *r, uint32 node)
{
	return __atomic_load_n(&r->bound[PipeannReservoirOf(r, node)],
						   __ATOMIC_RELAXED);
}

/* A distance >= 0 in 16 bits, in the order of distances. */
static inline uint16
PipeannReservoirDistance(int32 d)
{
	float		f = (float) d;
	uint32		bits;

	memcpy(&bits, &f, sizeof(bits));
	return (uint16) (bits >> 15);
}

/*
 * The number of a candidate by direction (a sketch's hash) and distance: for
 * one direction there are others at twice the distance, four and eight times.
 * In few dimensions there are few directions, and without those far ones a
 * search would take steps from one neighbour to the next.
 */
static inline uint16
PipeannFarHash(uint16 sketch_hash, uint16 distance)
{
	uint16		hash = sketch_hash |
		(distance >> 9 & 3) << PIPEANN_HASH_BITS;

	return Min(hash, PIPEANN_NO_HASH - 1);
}

/*
 * The first partition of all vectors, in an order of nodes that keeps near ones
 * together. Members of cluster c are ids[starts[c]] .. ids[starts[c + 1] - 1].
 */
struct PipeannClusters
{
	uint32		n;				/* 0: too few vectors to be cut */
	uint32	   *starts;			/* [n + 1] */
	uint32	   *ids;			/* a node is in several clusters */
	PipeannFixedScale scale;
};

/* A candidate, as it is offered. */
typedef struct PipeannOffer
{
	uint32		id;
	uint16		distance;
	uint16		hash;
} PipeannOffer;

/* Work space of one member for leaves, by the number of places of a reservoir. */
typedef struct PipeannLeafSpace PipeannLeafSpace;

extern void PipeannReservoirsInit(PipeannTeam *team, PipeannReservoirs *r,
								  uint32 n, int places, bool work);
extern void PipeannReservoirsEmpty(PipeannTeam *team, PipeannReservoirs *r);
extern void PipeannReservoirOffer(PipeannReservoirs *r, uint32 node,
								  const PipeannOffer *offers, int n);
extern int	PipeannReservoirOffers(const PipeannReservoirs *r, uint32 node,
								   PipeannOffer *offers);

/* clusters.c */
extern void PipeannCutClusters(PipeannTeam *team, const PipeannFixed *f,
							   const PipeannClusters *c, uint32 first,
							   uint32 end, uint64 seed,
							   PipeannReservoirs *r);

/* leaf.c */
extern PipeannLeafSpace *PipeannLeafSpaceNew(int dim, int nearest, int places);
extern void PipeannLeafSpaceFree(PipeannLeafSpace *space);
extern void PipeannLeaf(PipeannLeafSpace *space, const PipeannFixed *f,
						const uint32 *ids, int n, PipeannReservoirs *r);

static inline void
PipeannReservoirsFree(PipeannTeam *team, PipeannReservoirs *r)
{
	PipeannTeamFree(team, r->data);
	PipeannTeamFree(team, r->bound);
	PipeannTeamFree(team, r->locks);
}

#endif							/* PIPEANN_LEAF_H */
