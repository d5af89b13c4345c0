/*
 * shards.c
 *		Candidates where the reservoirs of all nodes do not fit memory.
 *
 * A leaf offers to reservoirs here and there, and a file does not take that
 * well. So the clusters are gone through in shards, of which the members'
 * reservoirs fit memory. After each these are merged into the reservoirs of
 * all nodes, in the order of nodes. As neighbouring clusters have many members
 * in common, a node is in few shards. The result is the same as without shards
 * (reservoir.h).
 */
#include "base/base.h"

#include "graph/build.h"
#include "graph/clusters.h"
#include "graph/reservoir.h"

/* Members merged at once by one member of the team. */
#define RUN 1024

/* Clusters of a shard that the leader has planned. */
typedef struct Plan
{
	uint32		from;
	uint32		to;
	uint32		n;				/* their members, each counted once */
} Plan;

typedef struct Shards
{
	const PipeannClusters *clusters;
	uint32		most;			/* members of a shard */
	Plan	   *plan;			/* shared, as the others */
	uint32	   *slot;			/* [nodes] place in reservoirs, or INVALID */
	uint32	   *members;		/* [most] ascending */
	PipeannReservoirs near;		/* of the shard's members */
} Shards;

static int
CompareIds(const void *a, const void *b)
{
	uint32		x = *(const uint32 *) a;
	uint32		y = *(const uint32 *) b;

	return x < y ? -1 : x > y;
}

static uint32
LargestCluster(const PipeannClusters *c)
{
	uint32		largest = 0;

	for (uint32 i = 0; i < c->n; i++)
		largest = Max(largest, c->starts[i + 1] - c->starts[i]);
	return largest;
}

/* Take the members of a cluster, or none if there is no room for all of them. */
static bool
TakeCluster(Shards *s, uint32 cluster)
{
	const PipeannClusters *c = s->clusters;
	uint32		n = s->plan->n;

	CHECK_FOR_INTERRUPTS();
	for (uint32 i = c->starts[cluster]; i < c->starts[cluster + 1]; i++)
	{
		uint32		id = c->ids[i];

		if (s->slot[id] != PIPEANN_INVALID_ID)
			continue;
		if (n == s->most)
		{
			while (n > s->plan->n)
				s->slot[s->members[--n]] = PIPEANN_INVALID_ID;
			return false;
		}
		s->slot[id] = n;
		s->members[n++] = id;
	}
	s->plan->n = n;
	return true;
}

/* The leader plans the shard that begins with this cluster. */
static void
PlanShard(Shards *s, uint32 from)
{
	Plan	   *plan = s->plan;

	for (uint32 i = 0; i < plan->n; i++)
		s->slot[s->members[i]] = PIPEANN_INVALID_ID;
	plan->from = plan->to = from;
	plan->n = 0;
	while (plan->to < s->clusters->n && TakeCluster(s, plan->to))
		plan->to++;
	qsort(s->members, plan->n, sizeof(uint32), CompareIds);
}

static void
MergeShard(PipeannTeam *team, Shards *s, PipeannReservoirs *r)
{
	uint64		from;
	uint64		to;

	PipeannTeamBegin(team, s->plan->n, RUN);
	while (PipeannTeamNext(team, &from, &to))
		for (uint64 i = from; i < to; i++)
			PipeannReservoirMerge(r, &s->near, s->members[i]);
	PipeannTeamEnd(team);
}

static void
ShardsInit(PipeannTeam *team, Shards *s, const PipeannClusters *c, uint32 n,
		   int places)
{
	Size		each = PipeannReservoirMemory(places) + sizeof(uint32);

	s->clusters = c;
	s->plan = PipeannTeamAlloc(team, sizeof(Plan));
	s->slot = PipeannTeamAlloc(team, mul_size(n, sizeof(uint32)));
	s->most = (uint32) Min(n, PipeannTeamRoom(team) / each);
	s->most = Max(s->most, LargestCluster(c));
	s->members = PipeannTeamAllocWork(team, mul_size(s->most,
													 sizeof(uint32)));
	if (PipeannTeamLeads(team))
		memset(s->slot, 0xFF, mul_size(n, sizeof(uint32)));
	PipeannReservoirsInit(team, &s->near, s->most, places, true);
	s->near.slot = s->slot;
}

static void
ShardsFree(PipeannTeam *team, Shards *s)
{
	PipeannReservoirsFree(team, &s->near);
	PipeannTeamFree(team, s->members);
	PipeannTeamFree(team, s->slot);
	PipeannTeamFree(team, s->plan);
}

/* Do the shard that begins with a cluster; returns where the next one begins. */
static uint32
DoShard(PipeannTeam *team, Shards *s, const PipeannFixed *f, int nearest,
		uint64 seed, uint32 from, PipeannReservoirs *r)
{
	uint32		next;

	if (PipeannTeamLeads(team))
		PlanShard(s, from);
	PipeannReservoirsEmpty(team, &s->near);
	PipeannCutClusters(team, f, s->clusters, s->plan->from, s->plan->to,
					   nearest, seed, &s->near);
	MergeShard(team, s, r);
	next = s->plan->to;
	PipeannTeamMeet(team);
	return next;
}

/*
 * To those who look on all shards together are one step, as there would be
 * without them.
 */
void
PipeannCutInShards(PipeannTeam *team, const PipeannFixed *f,
				   const PipeannClusters *c, int nearest, uint64 seed,
				   PipeannReservoirs *r)
{
	void		(*progress) (uint64 done, uint64 n, void *arg) = team->progress;
	uint32		step = team->steps + 1;
	uint32		next = 0;
	Shards		s;

	ShardsInit(team, &s, c, f->n, r->places);
	while (next < c->n)
	{
		team->progress = NULL;
		next = DoShard(team, &s, f, nearest, seed, next, r);
		team->progress = progress;
		team->steps = step;
		PipeannTeamReport(team, next, c->n);
	}
	ShardsFree(team, &s);
}
