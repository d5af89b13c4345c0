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
#define DEFAULT_PLACES 88

/*
 * Candidates that a leaf finds for a node whose reservoir has so many places.
 */
int
PipeannCandidatesNearest(int places)
{
	return Max(places * NEAREST / DEFAULT_PLACES, 2);
}

/* Candidates by chance that each node of a graph with far edges is offered. */
#define FAR 4

/* Nodes that one member does at once. */
#define RUN 256

/* Places of a reservoir for these parameters. */
int
PipeannCandidatePlaces(const PipeannGraphParams *params)
{
	int			places = Max(params->max_degree,
							 params->ef_construction * 7 / 8);

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

/* Offer a to the reservoir of b. */
static void
OfferTo(const PipeannFixed *f, PipeannReservoirs *r, uint32 b, uint32 a,
		uint16 distance)
{
	PipeannOffer offer = {.id = a,.distance = distance};

	offer.hash = PipeannFarHash(PipeannSketchHash(f->sketch + (Size) b *
												  PIPEANN_SKETCH,
												  f->sketch + (Size) a *
												  PIPEANN_SKETCH),
								distance);
	PipeannReservoirOffer(r, b, &offer, 1);
}

/* Offer two nodes to one another, those that are from first to end - 1. */
static void
OfferPair(const PipeannFixed *f, PipeannReservoirs *r, uint32 a, uint32 b,
		  uint32 first, uint32 end)
{
	bool		takes_a = a >= first && a < end;
	bool		takes_b = b >= first && b < end;
	uint16		distance;

	if (!takes_a && !takes_b)
		return;
	distance = PipeannReservoirDistance(PipeannFixedPair(f, a, b));
	if (takes_a)
		OfferTo(f, r, a, b, distance);
	if (takes_b)
		OfferTo(f, r, b, a, distance);
}

/*
 * Add candidates that are far to those of the nodes first .. end - 1. All
 * members call.
 *
 * Candidates by chance, which are far: by edges to these a search comes a long
 * way (Vamana begins with such a graph). Where there are near candidates
 * enough in all directions they find no place.
 */
void
PipeannFindFarCandidates(PipeannTeam *team, const PipeannFixed *f,
						 uint64 seed, uint32 first, uint32 end,
						 PipeannReservoirs *r)
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
					OfferPair(f, r, a, b, first, end);
			}
		}
	PipeannTeamEnd(team);
}

/* Fill the reservoirs of all nodes. All members call. */
void
PipeannFindCandidates(PipeannTeam *team, const PipeannFixed *f,
					  const PipeannClusters *c, uint64 seed,
					  PipeannReservoirs *r)
{
	if (f->n <= PIPEANN_LEAF)
		CompareAll(team, f, r);
	else
		PipeannCutClusters(team, f, c, 0, c->n,
						   PipeannCandidatesNearest(r->places), seed, r);
}
