/*
 * partition.c
 *		Leaders, and cutting sets.
 */
#include "base/base.h"

#include "distance/distance.h"
#include "graph/build.h"
#include "graph/clusters.h"
#include "graph/partition.h"
#include "graph/random.h"

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

void
PipeannLeadersInit(PipeannLeaders *l, const PipeannFixed *f, const uint32 *ids,
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

void
PipeannLeadersFree(PipeannLeaders *l)
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
void
PipeannAssign(const PipeannLeaders *l, const PipeannFixed *f,
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
	PipeannLeadersInit(l, p->fixed, sample, count);
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
	PipeannAssign(&leaders, p->fixed, ids, 0, n, fanout, assigned);
	Group(g, ids, n, fanout, assigned, leaders.n);
	pfree(assigned);
	PipeannLeadersFree(&leaders);
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

/* Cut the clusters from .. to - 1 into leaves. All members call. */
void
PipeannCutClusters(PipeannTeam *team, const PipeannFixed *f,
				   const PipeannClusters *c, uint32 first, uint32 end,
				   int nearest, uint64 seed, PipeannReservoirs *r)
{
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
