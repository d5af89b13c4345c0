/*
 * clusters.c
 *		The partition of all vectors into clusters, and of these into leaves (PiPNN,
 *		arXiv 2602.21247, section 3).
 *
 * Each vector goes to the clusters of several near leaders. The nearest one's
 * is its home. Nodes are numbered by their homes, which stand in an order in
 * which near ones follow one another: so what belongs to near nodes is near in
 * memory, or in a file, in everything that comes after.
 */
#include "base/base.h"

#include "base/random.h"
#include "distance/distance.h"
#include "graph/clusters.h"
#include "graph/partition.h"

/* Leaders, and cutting sets. */

#define ROWS PIPEANN_TILE_ROWS
#define COLUMNS PIPEANN_TILE_COLUMNS

/*
 * One vector of so many is a leader, but no more than that: what is too large
 * then is cut once more, and costs less in all.
 */
#define LEADER_PART 100
#define MOST_LEADERS 256

/* Each member of a cluster goes to so many parts of it. */
#define SECOND_FANOUT 3

/* Sets smaller than this are put together. */
#define SMALL (PIPEANN_LEAF / 8)

/* A set of which one part has more than 15/16 is cut without regard to space. */
#define CUT_PART 16

typedef struct Partition
{
	const PipeannFixed *fixed;
	PipeannReservoirs *reservoirs;
	PipeannLeafSpace *space;
	uint64		random;
	uint32		gathered[PIPEANN_LEAF]; /* of small sets */
	uint32		ngathered;
} Partition;

/* ---------- leaders ---------- */

static void
LeadersInit(PipeannLeaders *l, const PipeannFixed *f, const uint32 *ids,
			uint32 n)
{
	uint32		npanels = (n + COLUMNS - 1) / COLUMNS;
	const int16 *columns[COLUMNS];

	l->n = n;
	l->panels = PipeannAlloc(mul_size(mul_size(npanels, COLUMNS),
									  f->dim * sizeof(int16)));
	l->half_norm = PipeannAllocZero(mul_size(mul_size(npanels, COLUMNS),
											 sizeof(int32)));
	for (uint32 i = 0; i < n; i += COLUMNS)
	{
		int			count = Min(n - i, COLUMNS);

		for (int c = 0; c < count; c++)
		{
			columns[c] = PipeannFixedAt(f, ids[i + c]);
			l->half_norm[i + c] = f->half_norm[ids[i + c]];
		}
		PipeannTilePanel(columns, count, f->dim,
						 l->panels + (Size) i * f->dim);
	}
}

static void
LeadersFree(PipeannLeaders *l)
{
	pfree(l->panels);
	pfree(l->half_norm);
}

/* The nearest leaders of a row of a tile, the nearest first. */
typedef struct Nearest
{
	int			n;
	int32		distance[PIPEANN_MAX_FANOUT];
	uint32		leader[PIPEANN_MAX_FANOUT];
} Nearest;

static inline int32
Limit(const Nearest *nearest, int fanout)
{
	return nearest->n < fanout ? INT32_MAX : nearest->distance[fanout - 1];
}

static inline void
NoteLeader(Nearest *nearest, int fanout, uint32 leader, int32 d)
{
	int			at = nearest->n < fanout ? nearest->n++ : fanout - 1;

	for (; at > 0 && nearest->distance[at - 1] > d; at--)
	{
		nearest->distance[at] = nearest->distance[at - 1];
		nearest->leader[at] = nearest->leader[at - 1];
	}
	nearest->distance[at] = d;
	nearest->leader[at] = leader;
}

/*
 * Take those of a row's distances from the leaders j .. j + COLUMNS - 1 that
 * are near.
 */
static inline void
TakeLeaders(const PipeannLeaders *l, Nearest *nearest, int fanout, uint32 j,
			uint32 near, const int32 *d)
{
	if (j + COLUMNS > l->n)
		near &= (1u << (l->n - j)) - 1;
	for (; near != 0; near &= near - 1)
	{
		int			c = __builtin_ctz(near);

		if (d[c] < Limit(nearest, fanout))
			NoteLeader(nearest, fanout, j + c, d[c]);
	}
}

/* The nearest leaders of up to ROWS vectors; half_norm[] is for ROWS. */
static void
AssignTile(const PipeannLeaders *l, int dim, const int16 *const *rows,
		   const int32 *half_norm, int n, int fanout, uint32 *out)
{
	static const int32 no_limits[COLUMNS] = {0};
	int32		tile[ROWS * COLUMNS];
	int32		limits[ROWS];
	uint16		near[ROWS];
	Nearest		nearest[ROWS];

	for (int r = 0; r < ROWS; r++)
	{
		nearest[r].n = 0;
		limits[r] = INT32_MAX;
	}
	for (uint32 j = 0; j < l->n; j += COLUMNS)
	{
		PipeannKernel->dot_tile(rows, l->panels + (Size) j * dim, dim, tile);
		PipeannKernel->tile_near(half_norm, l->half_norm + j, limits,
								 no_limits, tile, near);
		for (int r = 0; r < n; r++)
		{
			TakeLeaders(l, &nearest[r], fanout, j, near[r],
						tile + r * COLUMNS);
			limits[r] = Limit(&nearest[r], fanout);
		}
	}
	for (int r = 0; r < n; r++)
		memcpy(out + r * fanout, nearest[r].leader, fanout * sizeof(uint32));
}

/*
 * Sets out[n][fanout] to the nearest leaders of each of the vectors ids[n], the
 * nearest first. fanout must be at most the number of leaders. ids NULL: the
 * vectors from `first` on.
 */
static void
Assign(const PipeannLeaders *l, const PipeannFixed *f,
	   const uint32 *ids, uint32 first, uint32 n, int fanout,
	   uint32 *out)
{
	const int16 *rows[ROWS];
	int32		half_norm[ROWS];

	Assert(fanout <= (int) l->n && fanout <= PIPEANN_MAX_FANOUT);
	for (uint32 i = 0; i < n; i += ROWS)
	{
		int			count = Min(n - i, ROWS);

		CHECK_FOR_INTERRUPTS();
		for (int r = 0; r < ROWS; r++)
		{
			uint32		at = i + Min(r, count - 1);
			uint32		id = ids != NULL ? ids[at] : first + at;

			rows[r] = PipeannFixedAt(f, id);
			half_norm[r] = f->half_norm[id];
		}
		AssignTile(l, f->dim, rows, half_norm, count, fanout,
				   out + (Size) i * fanout);
	}
}

/* ---------- cutting a set ---------- */

/* Offer within the sets gathered so far. A member may be in several of them. */
static void
CloseGathered(Partition *p)
{
	uint32		n = 0;

	for (uint32 i = 0; i < p->ngathered; i++)
	{
		uint32		j = 0;

		while (j < n && p->gathered[j] != p->gathered[i])
			j++;
		if (j == n)
			p->gathered[n++] = p->gathered[i];
	}
	PipeannLeaf(p->space, p->fixed, p->gathered, n, p->reservoirs);
	p->ngathered = 0;
}

static void
GatherSmall(Partition *p, const uint32 *ids, uint32 n)
{
	if (p->ngathered + n > PIPEANN_LEAF)
		CloseGathered(p);
	memcpy(p->gathered + p->ngathered, ids, n * sizeof(uint32));
	p->ngathered += n;
}

/* Leaders among ids[n], one from each of equal parts. */
static void
SampleLeaders(Partition *p, PipeannLeaders *l, const uint32 *ids, uint32 n)
{
	uint32		most = Min(MOST_LEADERS, PipeannMaxLeaders(p->fixed->dim));
	uint32		count = Max(Min((n + LEADER_PART - 1) / LEADER_PART, most), 2);
	uint32	   *sample = PipeannAlloc(mul_size(count, sizeof(uint32)));

	for (uint32 i = 0; i < count; i++)
	{
		uint32		from = (uint32) ((uint64) n * i / count);
		uint32		to = (uint32) ((uint64) n * (i + 1) / count);

		sample[i] = ids[from + PipeannRandomBelow(&p->random, to - from)];
	}
	LeadersInit(l, p->fixed, sample, count);
	pfree(sample);
}

/* Group ids[n] by leader, of which each has assigned[n][fanout]. */
static void
Group(PipeannGroups *g, const uint32 *ids, uint32 n, int fanout,
	  const uint32 *assigned, uint32 ngroups)
{
	Size		total = mul_size(n, fanout);
	uint32	   *at = PipeannAlloc(mul_size(ngroups, sizeof(uint32)));

	g->n = ngroups;
	g->starts = PipeannAllocZero(mul_size((Size) ngroups + 1,
										  sizeof(uint32)));
	g->ids = PipeannAlloc(mul_size(total, sizeof(uint32)));
	for (Size i = 0; i < total; i++)
		g->starts[assigned[i] + 1]++;
	for (uint32 i = 0; i < ngroups; i++)
	{
		g->starts[i + 1] += g->starts[i];
		at[i] = g->starts[i];
	}
	for (uint32 i = 0; i < n; i++)
		for (int k = 0; k < fanout; k++)
			g->ids[at[assigned[(Size) i * fanout + k]]++] = ids[i];
	pfree(at);
}

static void
Divide(Partition *p, PipeannGroups *g, const uint32 *ids, uint32 n,
	   int fanout)
{
	PipeannLeaders leaders;
	uint32	   *assigned;

	SampleLeaders(p, &leaders, ids, n);
	fanout = Min(fanout, (int) leaders.n);
	assigned = PipeannAlloc(mul_size(mul_size(n, fanout), sizeof(uint32)));
	Assign(&leaders, p->fixed, ids, 0, n, fanout, assigned);
	Group(g, ids, n, fanout, assigned, leaders.n);
	pfree(assigned);
	LeadersFree(&leaders);
}

/* Vectors that leaders do not tell apart: many equal ones, say. */
static void
CutAnyhow(Partition *p, const uint32 *ids, uint32 n)
{
	for (uint32 i = 0; i < n; i += PIPEANN_LEAF)
		PipeannLeaf(p->space, p->fixed, ids + i, Min(n - i, PIPEANN_LEAF),
					p->reservoirs);
}

static void
Cut(Partition *p, const uint32 *ids, uint32 n, int fanout)
{
	PipeannGroups groups;

	if (n <= PIPEANN_LEAF)
	{
		if (n < SMALL)
			GatherSmall(p, ids, n);
		else
			PipeannLeaf(p->space, p->fixed, ids, n, p->reservoirs);
		return;
	}
	Divide(p, &groups, ids, n, fanout);
	for (uint32 g = 0; g < groups.n; g++)
	{
		const uint32 *members = groups.ids + groups.starts[g];
		uint32		count = groups.starts[g + 1] - groups.starts[g];

		if (count > n - n / CUT_PART)
			CutAnyhow(p, members, count);
		else
			Cut(p, members, count, 1);
	}
	pfree(groups.starts);
	pfree(groups.ids);
}

/*
 * Cut the set ids[n] into leaves, and offer near members of each leaf to one
 * another's reservoirs.
 */
void
PipeannPartition(const PipeannFixed *f, const uint32 *ids, uint32 n, int fanout,
				 int nearest, uint64 seed, PipeannReservoirs *r)
{
	Partition	p = {.fixed = f,.reservoirs = r,.random = seed};

	p.space = PipeannLeafSpaceNew(f->dim, nearest, r->places);
	Cut(&p, ids, n, fanout);
	CloseGathered(&p);
	PipeannLeafSpaceFree(p.space);
}

/*
 * Candidates that a leaf finds for a node: so many for places enough for the
 * default ef_construction.
 */
#define NEAREST 3
#define DEFAULT_PLACES 88

/*
 * Candidates that a leaf finds for a node whose reservoir has so many places.
 */
static int
CandidatesNearest(int places)
{
	return Max(places * NEAREST / DEFAULT_PLACES, 2);
}

/* Cut the clusters from .. to - 1 into leaves. All members call. */
void
PipeannCutClusters(PipeannTeam *team, const PipeannFixed *f,
				   const PipeannClusters *c, uint32 first, uint32 end,
				   uint64 seed, PipeannReservoirs *r)
{
	int			nearest = CandidatesNearest(r->places);
	uint64		from;
	uint64		to;

	PipeannTeamBegin(team, end - first, 1);
	while (PipeannTeamNext(team, &from, &to))
	{
		uint32		i = first + (uint32) from;

		PipeannPartition(f, c->ids + c->starts[i],
						 c->starts[i + 1] - c->starts[i], SECOND_FANOUT,
						 nearest, seed + i, r);
	}
	PipeannTeamEnd(team);
}

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

	PipeannFixedInit(NULL, &c->clusters->scale, n, &f);
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
	LeadersInit(&c->leaders, &f, ids, n);
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
	Assign(&c->leaders, f, NULL, 0, to - from, c->fanout, out);
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

	PipeannFixedInit(NULL, &c->clusters->scale, RUN, &f);
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
	LeadersFree(&c->leaders);
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
