/*
 * shards.c
 *		Candidates where the reservoirs of all nodes do not fit memory.
 *
 * A leaf offers to reservoirs here and there, and a file does not take that
 * well. So the clusters are gone through in shards, of which the members'
 * reservoirs fit memory. What these hold in the end goes to logs, one for each
 * range of nodes whose reservoirs fit memory. Then the reservoirs of a range
 * are filled from its logs, and become lists. As neighbouring clusters have
 * many members in common, a node is in few shards.
 *
 * Files are written and read from the front to the end only. Each member has
 * logs of its own, and the order of offers does not matter (reservoir.h).
 */
#include "base/base.h"

#include "graph/build.h"
#include "graph/clusters.h"
#include "graph/reservoir.h"

/* Members logged at once by one member of the team. */
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
	uint32	   *members;		/* [most] */
	PipeannReservoirs near;		/* of the shard's members */
} Shards;

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
}

/* A log has records: this, and the offers. */
typedef struct Record
{
	uint32		node;
	uint32		n;
} Record;

/* One member's logs. */
typedef struct ShardLogs
{
	const PipeannLogs *logs;
	uint32		n;				/* ranges */
	uint32		range;			/* nodes of one */
	void	  **log;			/* [n] */
	PipeannOffer *offers;		/* [places] */
} ShardLogs;

static void
LogsInit(PipeannTeam *team, ShardLogs *l, uint32 nodes, uint32 range,
		 int places)
{
	l->logs = team->logs;
	l->range = range;
	l->n = (nodes + range - 1) / range;
	l->log = PipeannAlloc(mul_size(l->n, sizeof(void *)));
	for (uint32 i = 0; i < l->n; i++)
		l->log[i] = l->logs->open();
	l->offers = PipeannAlloc(mul_size(places, sizeof(PipeannOffer)));
}

static void
LogsFree(ShardLogs *l)
{
	pfree(l->log);
	pfree(l->offers);
}

static void
WriteRecord(ShardLogs *l, const PipeannReservoirs *r, uint32 node)
{
	Record		record = {node, PipeannReservoirOffers(r, node, l->offers)};
	void	   *log = l->log[node / l->range];

	if (record.n == 0)
		return;
	l->logs->write(log, &record, sizeof(record));
	l->logs->write(log, l->offers, record.n * sizeof(PipeannOffer));
}

static void
LogShard(PipeannTeam *team, Shards *s, ShardLogs *l)
{
	uint64		from;
	uint64		to;

	PipeannTeamBegin(team, s->plan->n, RUN);
	while (PipeannTeamNext(team, &from, &to))
		for (uint64 i = from; i < to; i++)
			WriteRecord(l, &s->near, s->members[i]);
	PipeannTeamEnd(team);
}

/* Offer what this member has logged of a range; the log goes. */
static void
ReadLog(ShardLogs *l, uint32 range, PipeannReservoirs *r)
{
	void	   *log = l->log[range];
	Record		record;

	l->logs->rewind(log);
	while (l->logs->read(log, &record, sizeof(record)) &&
		   l->logs->read(log, l->offers, record.n * sizeof(PipeannOffer)))
	{
		CHECK_FOR_INTERRUPTS();
		PipeannReservoirOffer(r, record.node, l->offers, record.n);
	}
	l->logs->close(log);
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

/* The reservoirs stay. */
static void
ShardsFree(PipeannTeam *team, Shards *s)
{
	s->near.slot = NULL;
	PipeannTeamFree(team, s->members);
	PipeannTeamFree(team, s->slot);
	PipeannTeamFree(team, s->plan);
}

/* Do the shard that begins with a cluster; returns where the next one begins. */
static uint32
DoShard(PipeannTeam *team, Shards *s, const PipeannFixed *f, uint64 seed,
		uint32 from, ShardLogs *l)
{
	uint32		next;

	if (PipeannTeamLeads(team))
		PlanShard(s, from);
	PipeannReservoirsEmpty(team, &s->near);
	PipeannCutClusters(team, f, s->clusters, s->plan->from, s->plan->to,
					   PipeannCandidatesNearest(s->near.places), seed,
					   &s->near);
	LogShard(team, s, l);
	next = s->plan->to;
	PipeannTeamMeet(team);
	return next;
}

static void
DoShards(PipeannTeam *team, Shards *s, const PipeannFixed *f, uint64 seed,
		 ShardLogs *l)
{
	PipeannTeamJoined joined;
	uint32		next = 0;

	PipeannTeamBeginJoined(team, &joined);
	while (next < s->clusters->n)
	{
		next = DoShard(team, s, f, seed, next, l);
		PipeannTeamTellJoined(team, &joined, next, s->clusters->n);
	}
	PipeannTeamEndJoined(team, &joined);
}

static void
DoRange(PipeannTeam *team, const PipeannVectors *v, const PipeannFixed *f,
		const PipeannGraphParams *params, ShardLogs *l, uint32 range,
		PipeannReservoirs *r, PipeannGraph *g)
{
	uint32		first = range * l->range;
	uint32		end = Min(first + l->range, g->n);

	r->first = first;
	PipeannReservoirsEmpty(team, r);
	ReadLog(l, range, r);
	PipeannTeamMeet(team);
	if (params->far)
		PipeannFindFarCandidates(team, f, params->seed, first, end, r);
	PipeannMakeLists(team, v, r, params->alpha, first, end, g);
}

/*
 * Candidates and neighbours of all nodes, where the reservoirs do not fit
 * memory. There must be clusters. All members call.
 */
void
PipeannListsInShards(PipeannTeam *team, const PipeannVectors *v,
					 const PipeannFixed *f, const PipeannClusters *c,
					 const PipeannGraphParams *params, PipeannGraph *g)
{
	int			places = PipeannCandidatePlaces(params);
	PipeannTeamJoined joined;
	ShardLogs	l;
	Shards		s;

	ShardsInit(team, &s, c, f->n, places);
	LogsInit(team, &l, f->n, s.most, places);
	DoShards(team, &s, f, params->seed, &l);
	ShardsFree(team, &s);
	PipeannTeamBeginJoined(team, &joined);
	for (uint32 range = 0; range < l.n; range++)
	{
		DoRange(team, v, f, params, &l, range, &s.near, g);
		PipeannTeamTellJoined(team, &joined, range + 1, l.n);
	}
	PipeannTeamEndJoined(team, &joined);
	LogsFree(&l);
	PipeannReservoirsFree(team, &s.near);
}
