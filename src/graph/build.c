/*
 * build.c
 *		Building the graph: candidates, and choosing neighbours among them, in
 *		shards if memory is short; RobustPrune; the entry graph.
 */
#include "base/base.h"

#include <float.h>
#include <math.h>

#include "base/key.h"
#include "base/random.h"
#include "graph/internal.h"

/* Random candidates that each node of a graph with far edges is offered. */
#define FAR 4

/* Nodes that one member handles at a time. */
#define SLICE 256

/* ---------- candidates, by partitioning (PiPNN, arXiv 2602.21247, 3) ---------- */

/* The size of a reservoir for these parameters: enough to fill a list. */
static int
CandidatePlaces(const PipeannGraphParams *params)
{
	int			places = Max(params->max_degree,
							 params->ef_construction * 7 / 8);

	return (places + PIPEANN_RESERVOIR_GROUP - 1) / PIPEANN_RESERVOIR_GROUP *
		PIPEANN_RESERVOIR_GROUP;
}

/*
 * Add far candidates to the reservoirs of the nodes first .. end - 1. All
 * members call. They are random nodes, which are far away: along edges to them
 * a search travels far in one step (Vamana begins with such a graph). Where
 * there are enough near candidates in all directions they are not kept.
 */
static void
FindFarCandidates(PipeannTeam *team, const PipeannFixed *f,
				  uint64 seed, uint32 first, uint32 end,
				  PipeannReservoirs *r)
{
	PipeannTeamEach(team, a, f->n, SLICE)
	{
		uint64		random = seed ^ ((uint64) a << 32);

		for (int k = 0; k < FAR; k++)
		{
			uint32		pair[2] = {(uint32) a, PipeannRandomBelow(&random, f->n)};

			for (int i = 0; i < 2; i++)
			{
				uint32		to = pair[i];
				PipeannOffer offer = {.id = pair[1 - i]};

				if (to == offer.id || to < first || to >= end)
					continue;
				offer.distance = PipeannReservoirDistance(PipeannFixedPair(f, to, offer.id));
				offer.hash = PipeannFarHash(PipeannSketchHash(f->sketch + (Size) to * PIPEANN_SKETCH,
															  f->sketch + (Size) offer.id * PIPEANN_SKETCH),
											offer.distance);
				PipeannReservoirOffer(r, to, &offer, 1);
			}
		}
	}
}

/* ---------- RobustPrune ---------- */

/* States of a candidate that needs no more comparisons with kept ones. */
#define KEPT (-1)
#define OUT (-2)

/* Candidates of a node, and work space. */
typedef struct Pruned
{
	uint32	   *cand;			/* [n] */
	float	   *dist;			/* [n] */
	int			n;
	PipeannKey *keys;			/* [n] */
	int		   *next;			/* [n] states */
	int		   *kept;			/* [max_degree] positions, as they were kept */
	int			nkept;
} Pruned;

static Pruned
PrunedNew(int most, int max_degree)
{
	return (Pruned) {
		.keys = PipeannArray(PipeannKey, most),.next = PipeannArray(int, most),
		.kept = PipeannArray(int, max_degree)
	};
}

static void
PrunedFree(Pruned *p)
{
	pfree(p->keys);
	pfree(p->next);
	pfree(p->kept);
}

/*
 * RobustPrune, into which callers inline their distance.
 *
 * A candidate is dropped if a kept one is nearer to it than the node is, by
 * the factor alpha. A first round with alpha 1 keeps the edges that no other
 * edge can replace, a second round those that alpha allows. Each candidate is
 * compared with the kept ones until one drops it, and the second round goes on
 * from there. That takes a fraction of the distances that updating all
 * candidates for each kept one would.
 */
static pg_attribute_always_inline void
PruneSorted(Pruned *p, const PipeannPruneParams *params,
				   PipeannPruneDistance distance, void *arg)
{
	const uint32 *cand = p->cand;
	const float *dist = p->dist;
	int		   *next = p->next;
	int		   *kept = p->kept;
	float		alpha = params->alpha;
	int			nkept = 0;

	memset(next, 0, sizeof(int) * p->n);
	for (int round = 0; round < (alpha > 1.0f ? 2 : 1); round++)
	{
		float		factor = round == 0 ? 1.0f : alpha;

		for (int i = 0; i < p->n && nkept < params->max_degree; i++)
		{
			int			s = next[i];

			if (s < 0)
				continue;
			for (; s < nkept; s++)
			{
				float		d = distance(cand[kept[s]], cand[i], arg);

				if (factor * d <= dist[i])
				{
					next[i] = alpha * d <= dist[i] ? OUT : s + 1;
					break;
				}
			}
			if (s == nkept)
			{
				kept[nkept++] = i;
				next[i] = KEPT;
			}
		}
	}
	p->nkept = nkept;
}

/* Sort candidates, the nearest first. */
static void
SortCandidates(Pruned *p)
{
	for (int i = 0; i < p->n; i++)
		p->keys[i] = PipeannKeyMake(Max(p->dist[i], 0.0f), p->cand[i]);
	PipeannKeySort(p->keys, p->n);
	for (int i = 0; i < p->n; i++)
	{
		p->cand[i] = PipeannKeyId(p->keys[i]);
		p->dist[i] = PipeannKeyDistance(p->keys[i]);
	}
}

/* The same for callers with a distance of their own. */
int
PipeannRobustPrune(uint32 *cand, float *dist, int ncand,
				   const PipeannPruneParams *params,
				   PipeannPruneDistance distance, void *arg, uint32 *out)
{
	Pruned		p;

	if (ncand <= 0 || params->max_degree <= 0)
		return 0;
	p = PrunedNew(ncand, params->max_degree);
	p.cand = cand;
	p.dist = dist;
	p.n = ncand;
	SortCandidates(&p);
	PruneSorted(&p, params, distance, arg);
	for (int i = 0; i < p.nkept; i++)
		out[i] = cand[p.kept[i]];
	PrunedFree(&p);
	return p.nkept;
}

/*
 * Which neighbour gives way to a node that joins target's full list[n]: the one that
 * the node makes most superfluous, even if by less than the factor alpha. Pairs of
 * neighbours were compared when the list was pruned, and are not compared again: so
 * this takes n distances instead of n * n / 2, and the list stays full.
 *
 * from_target[], from_node[]: the neighbours' distances, infinite where they are not known;
 * own: the node's from target. Returns the place of the neighbour, or PIPEANN_SUPERFLUOUS if by
 * RobustPrune's rule a nearer neighbour makes the node superfluous, or PIPEANN_UNDECIDED.
 */
int
PipeannGivesWay(const float *from_target, const float *from_node, int n, float own)
{
	int			place = PIPEANN_UNDECIDED;
	float		most = 0;

	for (int i = 0; i < n; i++)
	{
		if (from_target[i] <= own && PIPEANN_ALPHA * from_node[i] <= own)
			return PIPEANN_SUPERFLUOUS;
		if (!(from_target[i] > own) || isinf(from_node[i]) ||
			from_target[i] <= most * from_node[i])
			continue;
		most = from_target[i] / Max(from_node[i], FLT_MIN);
		place = i;
	}
	return place;
}

/*
 * A graph without edges, for lists of up to max_degree. The caller fills in
 * degree[], neighbors[] and medoid.
 */
static PipeannGraph *
NewGraph(PipeannTeam *team, uint32 n, int max_degree)
{
	PipeannGraph *graph = palloc0(sizeof(PipeannGraph));

	graph->n = n;
	graph->max_degree = max_degree;
	graph->medoid = n > 0 ? 0 : PIPEANN_INVALID_ID;
	graph->degree = PipeannTeamArray(team, uint16, n);
	graph->neighbors = PipeannTeamArray(team, uint32, mul_size(n, max_degree));
	return graph;
}

/* ---------- from candidates to neighbours ---------- */

static pg_attribute_always_inline float
MeasureDistance(uint32 a, uint32 b, void *arg)
{
	return PipeannMeasurePair(arg, a, b);
}

/*
 * Choose the neighbours of the nodes first .. end - 1 among their candidates.
 * All members call.
 */
static void
MakeLists(PipeannTeam *team, const PipeannVectors *v,
		  const PipeannReservoirs *r, uint32 first, uint32 end,
		  PipeannGraph *g)
{
	PipeannOffer *offers = PipeannArray(PipeannOffer, r->places);
	Pruned		p = PrunedNew(r->places, g->max_degree);
	PipeannPruneParams params = {
		.alpha = PIPEANN_ALPHA,.max_degree = g->max_degree
	};
	PipeannMeasure measure;

	PipeannMeasureInit(&measure, v);
	p.cand = PipeannArray(uint32, r->places);
	p.dist = PipeannArray(float, r->places);
	PipeannTeamEach(team, i, end - first, SLICE)
	{
		uint32		node = first + i;
		uint32	   *list = PipeannNeighbors(g, node);

		p.n = PipeannReservoirOffers(r, node, offers);
		for (int k = 0; k < p.n; k++)
			p.cand[k] = offers[k].id;
		PipeannMeasureMany(&measure, node, p.cand, p.n, p.dist);
		SortCandidates(&p);

		/*
		 * RobustPrune, and then the nearest that it dropped: there is room on
		 * disk anyway, and recall rises
		 */
		PruneSorted(&p, &params, MeasureDistance, &measure);
		for (int k = 0; k < p.nkept; k++)
			list[k] = p.cand[p.kept[k]];
		for (int k = 0; k < p.n && p.nkept < g->max_degree; k++)
			if (p.next[k] != KEPT)
				list[p.nkept++] = p.cand[k];
		g->degree[node] = p.nkept;
	}
	pfree(offers);
	pfree(p.cand);
	pfree(p.dist);
	PrunedFree(&p);
}

/*
 * The node nearest to the mean, which is zero in fixed point. Embedded vectors
 * are equally long, except for L2.
 */
static uint32
Medoid(const PipeannFixed *f)
{
	uint32		medoid = 0;

	for (uint32 i = 1; i < f->n; i++)
		if (f->half_norm[i] < f->half_norm[medoid])
			medoid = i;
	return medoid;
}

/* ---------- candidates where the reservoirs do not fit memory ---------- */

/*
 * A leaf makes offers to reservoirs at random places, for which files are too
 * slow. So the clusters are processed in shards, whose members' reservoirs fit
 * in memory. In the end their candidates go to logs, one for each range of
 * nodes whose reservoirs fit in memory. Then the reservoirs of a range are
 * filled from its logs, and become lists. As neighbouring clusters have many
 * members in common, a node is in few shards.
 *
 * Files are written and read sequentially. Each member has logs of its own,
 * and the order of offers does not matter (internal.h).
 */

/* Nodes of a shard that one member of the team logs at a time. */
#define SHARD_SLICE 1024

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

/* The head of a record of a log; its offers follow. */
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
	struct BufFile **log;		/* [n] */
	PipeannOffer *offers;		/* [places] */
} ShardLogs;

/* Process the shard that begins with a cluster; returns the first cluster of the next. */
static uint32
DoShard(PipeannTeam *team, Shards *s, const PipeannFixed *f, uint64 seed,
		uint32 from, ShardLogs *l)
{
	uint32		next;

	if (PipeannTeamLeads(team))
	{
		Plan	   *plan = s->plan;

		for (uint32 i = 0; i < plan->n; i++)
			s->slot[s->members[i]] = PIPEANN_INVALID_ID;
		plan->from = plan->to = from;
		plan->n = 0;
		while (plan->to < s->clusters->n && TakeCluster(s, plan->to))
			plan->to++;
	}
	PipeannReservoirsEmpty(team, &s->near);
	PipeannCutClusters(team, f, s->clusters, s->plan->from, s->plan->to, seed,
					   &s->near);
	PipeannTeamEach(team, i, s->plan->n, SHARD_SLICE)
	{
		uint32		node = s->members[i];
		Record		record = {node, PipeannReservoirOffers(&s->near, node, l->offers)};
		struct BufFile *log = l->log[node / l->range];

		if (record.n != 0)
		{
			l->logs->write(log, &record, sizeof(record));
			l->logs->write(log, l->offers, record.n * sizeof(PipeannOffer));
		}
	}
	next = s->plan->to;
	PipeannTeamMeet(team);
	return next;
}

/*
 * Several steps that are reported as one: the leader reports its progress, and the team's
 * own progress is switched off.
 */
static void
TellJoined(PipeannTeam *team, PipeannTeamProgress progress, uint32 step,
		   uint64 done, uint64 n)
{
	team->steps = step;
	if (progress != NULL && PipeannTeamLeads(team))
		progress(done, n, team->progress_arg);
}

/* Build the graph in shards of clusters, which there must be. */
static PipeannGraph *
BuildInShards(PipeannTeam *team, const PipeannVectors *v, PipeannFixed *f,
			  const PipeannClusters *c, const PipeannGraphParams *params)
{
	PipeannGraph *g = NewGraph(team, v->n, params->max_degree);
	int			places = CandidatePlaces(params);
	PipeannTeamProgress progress = team->progress;
	uint32		step;
	ShardLogs	l = {.logs = team->logs};
	Shards		s;
	Size		each = PipeannReservoirMemory(places) + sizeof(uint32);

	g->medoid = Medoid(f);
	s.clusters = c;
	s.plan = PipeannTeamAlloc(team, sizeof(Plan));
	s.slot = PipeannTeamArray(team, uint32, f->n);
	s.most = (uint32) Min(f->n, PipeannTeamRoom(team) / each);
	for (uint32 i = 0; i < c->n; i++)
		s.most = Max(s.most, c->starts[i + 1] - c->starts[i]);
	s.members = PipeannTeamAllocWork(team, mul_size(s.most, sizeof(uint32)));
	if (PipeannTeamLeads(team))
		memset(s.slot, 0xFF, mul_size(f->n, sizeof(uint32)));
	PipeannReservoirsInit(team, &s.near, s.most, places, true);
	s.near.slot = s.slot;
	l.range = s.most;
	l.n = (f->n + l.range - 1) / l.range;
	l.log = PipeannArray(struct BufFile *, l.n);
	for (uint32 i = 0; i < l.n; i++)
		l.log[i] = l.logs->open();
	l.offers = PipeannArray(PipeannOffer, places);

	step = team->steps + 1;
	team->progress = NULL;
	for (uint32 next = 0; next < c->n;)
	{
		next = DoShard(team, &s, f, params->seed, next, &l);
		TellJoined(team, progress, step, next, c->n);
	}
	PipeannTeamFree(team, s.members);
	PipeannTeamFree(team, s.slot);
	PipeannTeamFree(team, s.plan);

	/* the reservoirs are reused for each range */
	s.near.slot = NULL;
	step++;
	for (uint32 range = 0; range < l.n; range++)
	{
		uint32		first = range * l.range;
		uint32		end = Min(first + l.range, g->n);
		struct BufFile *log = l.log[range];
		Record		record;

		s.near.first = first;
		PipeannReservoirsEmpty(team, &s.near);
		l.logs->rewind(log);
		while (l.logs->read(log, &record, sizeof(record)) == sizeof(record) &&
			   l.logs->read(log, l.offers, record.n * sizeof(PipeannOffer)) > 0)
		{
			CHECK_FOR_INTERRUPTS();
			PipeannReservoirOffer(&s.near, record.node, l.offers, record.n);
		}
		l.logs->close(log);
		PipeannTeamMeet(team);
		if (params->far)
			FindFarCandidates(team, f, params->seed, first, end, &s.near);
		MakeLists(team, v, &s.near, first, end, g);
		TellJoined(team, progress, step, range + 1, l.n);
	}
	team->progress = progress;
	pfree(l.log);
	pfree(l.offers);
	PipeannReservoirsFree(team, &s.near);
	PipeannFixedFree(team, f);
	return g;
}

/* ---------- edges to nodes from near ones ---------- */

/*
 * A node that can be reached only from afar is not found, since a search
 * explores what is near its query. So this looks at nodes with few in-edges, or
 * with none from a node as near as the nearest one to which they lead. If none of
 * a node's nearest neighbours leads to it, one of them gets an edge to it.
 */

/* One of this many nearest nodes should lead to a node. */
#define NEAREST 10

/* A node has few in-edges if they are at most this part of the degree. */
#define FEW_PART 3

typedef struct Reach
{
	PipeannGraph *graph;
	PipeannMeasure measure;
	uint32		few;			/* the most in-edges that are few, see FEW_PART */

	/* shared by all members */
	uint32	   *in_degree;		/* [n] */
	uint32	   *near_in;		/* [n] bits of the nearest in-edge's length */
	uint8	   *missed;			/* [n] no near node leads to it */

	/* work space */
	float	   *dist;			/* [max_degree] */
	PipeannKey *near;			/* [max_degree] */
} Reach;

/* Sets dist[] to the distances between a node and its neighbours. */
static void
MeasureList(Reach *r, uint32 node)
{
	PipeannMeasureMany(&r->measure, node, PipeannNeighbors(r->graph, node),
					   r->graph->degree[node], r->dist);
}

static inline uint32
Bits(float distance)
{
	uint32		bits;

	memcpy(&bits, &distance, sizeof(bits));
	return bits;
}

/* Sets near[] to a node's neighbours, the nearest first; returns how many. */
static int
SortNeighbors(Reach *r, uint32 node)
{
	const uint32 *neighbors = PipeannNeighbors(r->graph, node);
	int			degree = r->graph->degree[node];

	MeasureList(r, node);
	for (int i = 0; i < degree; i++)
		r->near[i] = PipeannKeyMake(r->dist[i], neighbors[i]);
	PipeannKeySort(r->near, degree);
	return degree;
}

static bool
IsMissed(Reach *r, uint32 node)
{
	int			n = Min(SortNeighbors(r, node), NEAREST);

	/* whether few edges, or none from a near node, lead to it */
	if (n == 0 || (r->in_degree[node] > r->few &&
				   r->near_in[node] <= Bits(PipeannKeyDistance(r->near[0]))))
		return false;
	for (int i = 0; i < n; i++)
	{
		uint32		near = PipeannKeyId(r->near[i]);

		if (PipeannListHas(PipeannNeighbors(r->graph, near),
						   r->graph->degree[near], node))
			return false;
	}
	return true;
}

/*
 * Add an edge if there is room, or in place of the longest one whose target has more than a
 * few in-edges.
 */
static bool
AddEdge(Reach *r, uint32 from, uint32 node)
{
	uint32	   *neighbors = PipeannNeighbors(r->graph, from);
	uint16	   *degree = &r->graph->degree[from];
	int			place = -1;

	if (*degree < r->graph->max_degree)
		place = (*degree)++;
	else
	{
		MeasureList(r, from);
		for (int i = 0; i < *degree; i++)
			if (r->in_degree[neighbors[i]] > r->few &&
				(place < 0 || r->dist[i] > r->dist[place]))
				place = i;
		if (place < 0)
			return false;
		r->in_degree[neighbors[place]]--;
	}
	neighbors[place] = node;
	r->in_degree[node]++;
	return true;
}

/* Bytes for each node. */
#define REACH_MEMORY (2 * sizeof(uint32) + 1)

/* All members call. */
static void
Connect(PipeannTeam *team, PipeannGraph *graph, const PipeannVectors *vectors)
{
	Size		degree = graph->max_degree;
	Reach		r = {.graph = graph,.few = Max(degree / FEW_PART, 1)};

	PipeannMeasureInit(&r.measure, vectors);
	r.dist = PipeannArray(float, degree);
	r.near = PipeannArray(PipeannKey, degree);
	r.in_degree = PipeannTeamArray(team, uint32, graph->n);
	r.near_in = PipeannTeamArray(team, uint32, graph->n);
	r.missed = PipeannTeamAlloc(team, graph->n);
	PipeannTeamSlices(team, from, to, graph->n, SLICE)
		memset(r.near_in + from, 0xFF, (to - from) * sizeof(uint32));
	PipeannTeamEach(team, node, graph->n, SLICE)
	{
		const uint32 *neighbors = PipeannNeighbors(graph, node);

		MeasureList(&r, node);
		for (int i = 0; i < graph->degree[node]; i++)
		{
			uint32	   *least;
			uint32		bits;
			uint32		now;

			__atomic_fetch_add(&r.in_degree[neighbors[i]], 1,
							   __ATOMIC_RELAXED);
			/* distances are not negative, so their bits are ordered like them */
			least = &r.near_in[neighbors[i]];
			bits = Bits(r.dist[i]);
			now = __atomic_load_n(least, __ATOMIC_RELAXED);
			while (bits < now &&
				   !__atomic_compare_exchange_n(least, &now, bits, true,
												__ATOMIC_RELAXED, __ATOMIC_RELAXED))
				;
		}
	}
	PipeannTeamEach(team, node, graph->n, SLICE)
		r.missed[node] = IsMissed(&r, node);
	if (PipeannTeamLeads(team))
	{
		/* each edge may depend on those before: the leader does this alone */
		for (uint32 node = 0; node < graph->n; node++)
		{
			int			n;

			CHECK_FOR_INTERRUPTS();
			if (!r.missed[node] || !IsMissed(&r, node))
				continue;
			n = Min(SortNeighbors(&r, node), NEAREST);
			for (int i = 0; i < n; i++)
				if (AddEdge(&r, PipeannKeyId(r.near[i]), node))
					break;
		}
	}
	PipeannTeamMeet(team);
	PipeannTeamFree(team, r.in_degree);
	PipeannTeamFree(team, r.near_in);
	PipeannTeamFree(team, r.missed);
	pfree(r.dist);
	pfree(r.near);
}

/* ---------- the whole ---------- */

static Size
ListMemory(const PipeannGraphParams *params)
{
	return add_size(mul_size(params->max_degree, sizeof(uint32)),
					sizeof(uint16));
}

/*
 * Bytes that PipeannGraphBuild() needs for n nodes, including its result,
 * shared by all members. While candidates are collected fixed-point vectors
 * are in memory, too; while lists are made the candidates are.
 */
Size
PipeannGraphMemory(uint32 n, const PipeannGraphParams *params,
				   const PipeannVectors *vectors)
{
	Size		reservoir = PipeannReservoirMemory(CandidatePlaces(params));
	Size		list = ListMemory(params);
	Size		candidates = add_size(PipeannFixedMemory(vectors),
									  PipeannClusterMemory());

	return add_size(mul_size(n, add_size(reservoir, Max(candidates, list))),
					mul_size(n, REACH_MEMORY));
}

/*
 * An estimate of the bytes of files that it needs in addition if memory is
 * short. Lists exist together with fixed-point vectors, and logs take half as
 * much again as the reservoirs that they fill (ten million rows: 1.45).
 */
Size
PipeannGraphShardFiles(uint32 n, const PipeannGraphParams *params)
{
	return mul_size(n, add_size(ListMemory(params),
								PipeannReservoirMemory(CandidatePlaces(params)) / 2));
}

/* Build the graph in memory: lists replace the fixed-point vectors. */
static PipeannGraph *
BuildAtOnce(PipeannTeam *team, const PipeannVectors *v, PipeannFixed *f,
			const PipeannClusters *c, const PipeannGraphParams *params)
{
	uint32		medoid = Medoid(f);
	PipeannReservoirs r;
	PipeannGraph *graph;

	PipeannReservoirsInit(team, &r, v->n, CandidatePlaces(params), false);
	PipeannCutClusters(team, f, c, 0, c->n, params->seed, &r);
	if (params->far)
		FindFarCandidates(team, f, params->seed, 0, v->n, &r);
	PipeannFixedFree(team, f);
	graph = NewGraph(team, v->n, params->max_degree);
	graph->medoid = medoid;
	MakeLists(team, v, &r, 0, v->n, graph);
	PipeannReservoirsFree(team, &r);
	return graph;
}

/*
 * Build the graph (src/README, "build/: CREATE INDEX"). In it every node has at least one
 * neighbour if n > 1, no node is its own neighbour, no list has a duplicate, and nearly
 * every node has an edge from a near node. clusters may be NULL. All members call.
 */
PipeannGraph *
PipeannGraphBuild(PipeannTeam *team, const PipeannVectors *vectors,
				  const PipeannClusters *clusters,
				  const PipeannGraphParams *params)
{
	Size		size = mul_size(vectors->n,
								PipeannReservoirMemory(CandidatePlaces(params)));
	PipeannClusters *own = NULL;
	PipeannFixed fixed;
	PipeannGraph *graph;

	if (vectors->n == 0)
		return NewGraph(team, 0, params->max_degree);
	if (clusters == NULL)
		clusters = own = PipeannClustersNew(team, vectors, NULL, params->seed,
											NULL);
	PipeannFixedMake(team, &clusters->scale, vectors, &fixed);
	if (vectors->n > PIPEANN_LEAF && !PipeannTeamFits(team, size))
		graph = BuildInShards(team, vectors, &fixed, clusters, params);
	else
		graph = BuildAtOnce(team, vectors, &fixed, clusters, params);
	if (own != NULL)
		PipeannClustersFree(team, own);
	Connect(team, graph, vectors);
	return graph;
}

/* ---------- the entry graph, over a sample of the vectors ---------- */

#define ENTRY_EF 64

/*
 * The sample is copied to an array of its own, so that near nodes of the
 * sample are near in memory. All members share it.
 */
static PipeannVectors
GatherSample(PipeannTeam *team, const PipeannVectors *vectors,
			 const uint32 *ids, uint32 n)
{
	PipeannVectors sample = *vectors;
	char	   *data = PipeannTeamAlloc(team, mul_size(n, vectors->stride));
	float	   *aux = NULL;

	if (vectors->aux != NULL)
		aux = PipeannTeamArray(team, float, n);
	PipeannTeamEach(team, i, n, SLICE)
	{
		uint32		id = ids != NULL ? ids[i] : i;

			memcpy(data + i * vectors->stride, PipeannVectorAt(vectors, id),
				   PipeannVectorBytes(vectors->storage, vectors->dim));
			if (aux != NULL)
				aux[i] = vectors->aux[id];
		}
	sample.n = n;
	sample.data = data;
	sample.aux = aux;
	return sample;
}

/*
 * Build the entry graph (PipeANN 4.2.2, LAANN 4): a graph over the sample ids[n_sample]
 * of the vectors, or if that is NULL the first n_sample. Its node i stands for ids[i],
 * and its neighbours are positions in ids[]. Searches enter at its medoid, from which
 * all its nodes can be reached. The result is freed by PipeannGraphFree().
 */
PipeannGraph *
PipeannEntryGraphBuild(PipeannTeam *team, const PipeannVectors *vectors,
					   const uint32 *ids, uint32 n_sample, int max_degree,
					   uint64 seed)
{
	PipeannVectors sample = GatherSample(team, vectors, ids, n_sample);
	PipeannGraphParams params = {
		.max_degree = max_degree,.ef_construction = ENTRY_EF,
		.seed = seed,.far = true
	};
	PipeannGraph *graph = PipeannGraphBuild(team, &sample, NULL, &params);

	PipeannTeamFree(team, sample.data);
	PipeannTeamFree(team, sample.aux);
	return graph;
}
