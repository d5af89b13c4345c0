/*
 * clusters.c
 *		The first partition of all vectors (PiPNN, arXiv 2602.21247, section 3).
 *
 * Each vector goes to the clusters of several near leaders. The nearest one's
 * is its home. Nodes are numbered by their homes, which stand in an order in
 * which near ones follow one another: so what belongs to near nodes is near in
 * memory, or in a file, in everything that comes after.
 */
#include "base/base.h"

#include "distance/distance.h"
#include "graph/clusters.h"
#include "graph/partition.h"
#include "graph/random.h"

/* One vector of so many is a leader. */
#define LEADER_PART 100

/* Each vector goes to the clusters of so many leaders. */
#define FANOUT 10

/* Vectors assigned at once by one member. */
#define RUN 1020

/* Rows between two looks for interrupts, where the leader goes through all. */
#define INTERRUPT_ROWS 65536

typedef struct Clustering
{
	const PipeannVectors *rows;
	const uint8 *skip;			/* [rows] or NULL */
	PipeannClusters *clusters;
	int			fanout;
	PipeannLeaders leaders;
	uint16	   *assigned;		/* [rows][fanout] */
} Clustering;

/* Bytes that clusters need for each node. */
Size
PipeannClusterMemory(void)
{
	return FANOUT * (sizeof(uint16) + sizeof(uint32));
}

/* ---------- leaders ---------- */

/* Leaders and distances from two ends, to halve a set of them. */
typedef struct Halving
{
	int32		between;		/* distance from one end less that from the other */
	uint32		leader;
} Halving;

static int
CompareHalving(const void *a, const void *b)
{
	const Halving *x = a;
	const Halving *y = b;

	if (x->between != y->between)
		return x->between < y->between ? -1 : 1;
	return x->leader < y->leader ? -1 : x->leader > y->leader;
}

static uint32
Farthest(const PipeannFixed *f, const Halving *h, uint32 n, uint32 from)
{
	uint32		farthest = from;
	int32		most = -1;

	for (uint32 i = 0; i < n; i++)
	{
		int32		d = PipeannFixedPair(f, h[i].leader, from);

		if (d > most)
		{
			most = d;
			farthest = h[i].leader;
		}
	}
	return farthest;
}

/* Halve the set between two far ends, and its halves again. */
static void
OrderLeaders(const PipeannFixed *f, Halving *h, uint32 n)
{
	uint32		one;
	uint32		other;

	CHECK_FOR_INTERRUPTS();
	if (n <= 2)
		return;
	one = Farthest(f, h, n, h[0].leader);
	other = Farthest(f, h, n, one);
	for (uint32 i = 0; i < n; i++)
		h[i].between = PipeannFixedPair(f, h[i].leader, one) -
			PipeannFixedPair(f, h[i].leader, other);
	qsort(h, n, sizeof(Halving), CompareHalving);
	OrderLeaders(f, h, n / 2);
	OrderLeaders(f, h + n / 2, n - n / 2);
}

/* A row from .. to - 1 that is not skipped, if there is one. */
static uint32
PickRow(const Clustering *c, uint32 from, uint32 to, uint64 *seed)
{
	uint32		row = from + PipeannRandomBelow(seed, to - from);

	for (uint32 i = row; c->skip != NULL && i < to; i++)
		if (!c->skip[i])
			return i;
	return row;
}

/* All members sample the same leaders. */
static void
MakeLeaders(Clustering *c, uint32 n, uint64 seed)
{
	PipeannFixed f;
	Halving    *h = PipeannAlloc(mul_size(n, sizeof(Halving)));
	uint32	   *ids = PipeannAlloc(mul_size(n, sizeof(uint32)));

	PipeannFixedInit(&f, &c->clusters->scale, n);
	for (uint32 i = 0; i < n; i++)
	{
		uint32		from = (uint32) ((uint64) c->rows->n * i / n);
		uint32		to = (uint32) ((uint64) c->rows->n * (i + 1) / n);

		PipeannFixedSet(&f, i, &c->clusters->scale, c->rows,
						PickRow(c, from, to, &seed));
		h[i].leader = i;
	}
	OrderLeaders(&f, h, n);
	for (uint32 i = 0; i < n; i++)
		ids[i] = h[i].leader;
	PipeannLeadersInit(&c->leaders, &f, ids, n);
	PipeannFixedFree(NULL, &f);
	pfree(h);
	pfree(ids);
}

/* ---------- assignment ---------- */

static void
AssignRun(Clustering *c, PipeannFixed *f, uint32 *out, uint32 from, uint32 to)
{
	for (uint32 row = from; row < to; row++)
		PipeannFixedSet(f, row - from, &c->clusters->scale, c->rows, row);
	PipeannAssign(&c->leaders, f, NULL, 0, to - from, c->fanout, out);
	for (Size i = 0; i < (Size) (to - from) * c->fanout; i++)
		c->assigned[(Size) from * c->fanout + i] = (uint16) out[i];
}

static void
AssignRows(PipeannTeam *team, Clustering *c)
{
	uint32	   *out = PipeannAlloc(mul_size(RUN * c->fanout, sizeof(uint32)));
	PipeannFixed f;
	uint64		from;
	uint64		to;

	PipeannFixedInit(&f, &c->clusters->scale, RUN);
	PipeannTeamBegin(team, c->rows->n, RUN);
	while (PipeannTeamNext(team, &from, &to))
		AssignRun(c, &f, out, (uint32) from, (uint32) to);
	PipeannTeamEnd(team);
	PipeannFixedFree(NULL, &f);
	pfree(out);
}

/* Whether a row becomes a node. Now and then looks for interrupts. */
static inline bool
IsWanted(const Clustering *c, uint32 row)
{
	if (row % INTERRUPT_ROWS == 0)
		CHECK_FOR_INTERRUPTS();
	return c->skip == NULL || !c->skip[row];
}

/* Number rows that are not skipped by their homes. */
static void
NumberRows(const Clustering *c, uint32 *number)
{
	uint32	   *next = PipeannAllocZero(mul_size((Size) c->clusters->n + 1,
												 sizeof(uint32)));

	for (uint32 row = 0; row < c->rows->n; row++)
		if (IsWanted(c, row))
			next[c->assigned[(Size) row * c->fanout] + 1]++;
	for (uint32 i = 0; i < c->clusters->n; i++)
		next[i + 1] += next[i];
	for (uint32 row = 0; row < c->rows->n; row++)
		if (IsWanted(c, row))
			number[row] = next[c->assigned[(Size) row * c->fanout]]++;
	pfree(next);
}

/* The members of each cluster, in the order of rows. */
static void
GroupRows(const Clustering *c, const uint32 *number)
{
	PipeannClusters *clusters = c->clusters;
	uint32	   *at = PipeannAlloc(mul_size(clusters->n, sizeof(uint32)));
	const uint16 *assigned = c->assigned;

	for (uint32 row = 0; row < c->rows->n; row++, assigned += c->fanout)
		if (IsWanted(c, row))
			for (int k = 0; k < c->fanout; k++)
				clusters->starts[assigned[k] + 1]++;
	for (uint32 i = 0; i < clusters->n; i++)
	{
		clusters->starts[i + 1] += clusters->starts[i];
		at[i] = clusters->starts[i];
	}
	assigned = c->assigned;
	for (uint32 row = 0; row < c->rows->n; row++, assigned += c->fanout)
		if (IsWanted(c, row))
			for (int k = 0; k < c->fanout; k++)
				clusters->ids[at[assigned[k]]++] =
					number != NULL ? number[row] : row;
	pfree(at);
}

static void
NumberInOrder(const Clustering *c, uint32 *number)
{
	uint32		n = 0;

	for (uint32 row = 0; row < c->rows->n; row++)
		if (IsWanted(c, row))
			number[row] = n++;
}

/* ---------- the whole ---------- */

static void
Cluster(PipeannTeam *team, Clustering *c, uint64 seed, uint32 *number)
{
	Size		total;

	c->fanout = Min(c->clusters->n, FANOUT);
	total = mul_size(c->rows->n, c->fanout);
	MakeLeaders(c, c->clusters->n, seed);
	c->assigned = PipeannTeamAlloc(team, mul_size(total, sizeof(uint16)));
	AssignRows(team, c);
	PipeannLeadersFree(&c->leaders);
	c->clusters->starts = PipeannTeamAlloc(team,
										   mul_size((Size) c->clusters->n + 1,
													sizeof(uint32)));
	c->clusters->ids = PipeannTeamAlloc(team, mul_size(total, sizeof(uint32)));
	if (PipeannTeamLeads(team))
	{
		if (number != NULL)
			NumberRows(c, number);
		GroupRows(c, number);
	}
	PipeannTeamMeet(team);
	PipeannTeamFree(team, c->assigned);
}

PipeannClusters *
PipeannClustersNew(PipeannTeam *team, const PipeannVectors *rows,
				   const uint8 *skip, uint64 seed, uint32 *number)
{
	PipeannClusters *clusters = palloc0(sizeof(PipeannClusters));
	Clustering	c = {.rows = rows,.skip = skip,.clusters = clusters};

	PipeannFixedScaleInit(&clusters->scale, rows, seed);
	if (rows->n > PIPEANN_LEAF)
	{
		clusters->n = Min(rows->n / LEADER_PART,
						  PipeannMaxLeaders(clusters->scale.fixed_dim));
		Cluster(team, &c, seed, number);
	}
	else
	{
		if (number != NULL && PipeannTeamLeads(team))
			NumberInOrder(&c, number);
		PipeannTeamMeet(team);
	}
	return clusters;
}

void
PipeannClustersFree(PipeannTeam *team, PipeannClusters *clusters)
{
	if (clusters->n > 0)
	{
		PipeannTeamFree(team, clusters->starts);
		PipeannTeamFree(team, clusters->ids);
	}
	PipeannFixedScaleFree(&clusters->scale);
	pfree(clusters);
}
