/*
 * candidates.c
 *		Candidates for every node's neighbours, by partitioning (PiPNN,
 *		arXiv 2602.21247, section 3).
 */
#include "base/base.h"

#include <math.h>

#include "graph/build.h"
#include "graph/clusters.h"
#include "graph/partition.h"

/*
 * Candidates that a leaf finds for a node: so many for places enough for the
 * default ef_construction.
 */
#define NEAREST 3
#define DEFAULT_PLACES 72

/* Levels of far candidates: each has so many times fewer nodes, at least so many. */
#define FAR_PART 16
#define FAR_LEAST 16
#define FAR_FANOUT 2
#define FAR_NEAREST 4

int
PipeannCandidatePlaces(const PipeannGraphParams *params)
{
	int			places = Max(params->max_degree,
							 params->ef_construction * 2 / 3);

	return (places + PIPEANN_RESERVOIR_GROUP - 1) / PIPEANN_RESERVOIR_GROUP *
		PIPEANN_RESERVOIR_GROUP;
}

/* One node of every `step` looks for candidates among its like. */
static void
FindAmong(const PipeannFixed *f, uint32 step, uint64 seed,
		  PipeannReservoirs *r)
{
	uint32		n = f->n / step;
	uint32	   *ids = PipeannAlloc(mul_size(n, sizeof(uint32)));

	for (uint32 i = 0; i < n; i++)
		ids[i] = i * step;
	PipeannPartition(f, ids, n, FAR_FANOUT, FAR_NEAREST, seed, r);
	pfree(ids);
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

/*
 * Candidates among one node of FAR_PART, of FAR_PART squared, and so on: by
 * edges between these a search comes a long way. Where there are near
 * candidates enough in all directions they find no place.
 */
void
PipeannFindFarCandidates(PipeannTeam *team, const PipeannFixed *f,
						 uint64 seed, PipeannReservoirs *r)
{
	int			levels = 0;
	uint64		from;
	uint64		to;

	for (uint32 n = f->n / FAR_PART; n >= FAR_LEAST; n /= FAR_PART)
		levels++;
	PipeannTeamBegin(team, levels, 1);
	while (PipeannTeamNext(team, &from, &to))
		FindAmong(f, (uint32) pow(FAR_PART, from + 1), seed + from, r);
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
