/*
 * candidates.c
 *		Candidates for every node's neighbours, by partitioning (PiPNN,
 *		arXiv 2602.21247, section 3).
 */
#include "base/base.h"

#include "graph/build.h"
#include "graph/clusters.h"
#include "graph/partition.h"
#include "graph/random.h"

/*
 * Candidates that a leaf finds for a node: so many for places enough for the
 * default ef_construction.
 */
#define NEAREST 3
#define DEFAULT_PLACES 72

/* Candidates by chance that each node of a graph with far edges is offered. */
#define FAR 4

/* Nodes that one member does at once. */
#define RUN 256

int
PipeannCandidatePlaces(const PipeannGraphParams *params)
{
	int			places = Max(params->max_degree,
							 params->ef_construction * 2 / 3);

	return (places + PIPEANN_RESERVOIR_GROUP - 1) / PIPEANN_RESERVOIR_GROUP *
		PIPEANN_RESERVOIR_GROUP;
}

/* So few that each is compared with all others. */
static void
CompareAll(PipeannTeam *team, const PipeannFixed *f, PipeannReservoirs *r)
{
	uint32		ids[PIPEANN_LEAF];

	for (uint32 i = 0; i < f->n; i++)
		ids[i] = i;
	if (PipeannTeamLeads(team))
		PipeannPartition(f, ids, f->n, 1, r->places, 0, r);
	PipeannTeamMeet(team);
}

/* Offer two nodes to one another's reservoirs. */
static void
OfferPair(const PipeannFixed *f, PipeannReservoirs *r, uint32 a, uint32 b)
{
	const int16 *x = PipeannFixedAt(f, a);
	const int16 *y = PipeannFixedAt(f, b);
	const int16 *x_sketch = f->sketch + (Size) a * PIPEANN_SKETCH;
	const int16 *y_sketch = f->sketch + (Size) b * PIPEANN_SKETCH;
	PipeannOffer offer;
	int32		dot = 0;

	for (int d = 0; d < f->dim; d++)
		dot += (int32) x[d] * y[d];
	offer.distance =
		PipeannReservoirDistance(PipeannFixedDistance(f->half_norm[a],
													  f->half_norm[b], dot));
	offer.id = b;
	offer.hash = PipeannFarHash(PipeannSketchHash(x_sketch, y_sketch),
								offer.distance);
	PipeannReservoirOffer(r, a, &offer, 1);
	offer.id = a;
	offer.hash = PipeannFarHash(PipeannSketchHash(y_sketch, x_sketch),
								offer.distance);
	PipeannReservoirOffer(r, b, &offer, 1);
}

/*
 * Candidates by chance, which are far: by edges to these a search comes a long
 * way (Vamana begins with such a graph). Where there are near candidates
 * enough in all directions they find no place.
 */
void
PipeannFindFarCandidates(PipeannTeam *team, const PipeannFixed *f,
						 uint64 seed, PipeannReservoirs *r)
{
	uint64		from;
	uint64		to;

	PipeannTeamBegin(team, f->n, RUN);
	while (PipeannTeamNext(team, &from, &to))
		for (uint32 a = from; a < to; a++)
		{
			uint64		random = seed ^ ((uint64) a << 32);

			for (int k = 0; k < FAR; k++)
			{
				uint32		b = PipeannRandomBelow(&random, f->n);

				if (b != a)
					OfferPair(f, r, a, b);
			}
		}
	PipeannTeamEnd(team);
}

void
PipeannFindCandidates(PipeannTeam *team, const PipeannFixed *f,
					  const PipeannClusters *c, uint64 seed, bool shards,
					  PipeannReservoirs *r)
{
	int			nearest = Max(r->places * NEAREST / DEFAULT_PLACES, 2);

	if (f->n <= PIPEANN_LEAF)
		CompareAll(team, f, r);
	else if (shards)
		PipeannCutInShards(team, f, c, nearest, seed, r);
	else
		PipeannCutClusters(team, f, c, 0, c->n, nearest, seed, r);
}
