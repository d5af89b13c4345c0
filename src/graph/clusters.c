/*
 * clusters.c
 *		Partition of vectors into clusters, and of clusters into leaves (PiPNN,
 *		arXiv 2602.21247, section 3).
 *
 * Each vector goes to the clusters of several near leaders. That of the
 * nearest is its home. Nodes are numbered by their homes, which are ordered so
 * that near ones follow one another: so data of near nodes are near in memory,
 * or in a file, from then on.
 *
 * Leaders are sampled, and each vector goes to several of the nearest leaders:
 * so near vectors meet in one set or another even if a border runs between
 * them. A set that is too large is cut in the same way.
 */
#include "base/base.h"

#include "base/random.h"
#include "graph/internal.h"

/* ---------- leaders ---------- */

#define ROWS PIPEANN_TILE_ROWS
#define COLUMNS PIPEANN_TILE_COLUMNS

/*
 * One vector in LEADER_PART is a leader, up to MOST_LEADERS: cutting sets that
 * are too large once more costs less than more leaders.
 */
#define LEADER_PART 100
#define MOST_LEADERS 256

/* The most leaders of a set: those whose panels fit in the CPU's caches. */
#define MAX_LEADERS 1000
#define LEADER_BYTES (4 * 1024 * 1024)

static uint32
MaxLeaders(int dim)
{
	Size		fit = LEADER_BYTES / (dim * sizeof(int16));

	return (uint32) Min(fit, MAX_LEADERS);
}

/* The most leaders that a vector goes to. */
#define MAX_FANOUT 16

/* Leaders, stored as panels of columns. */
typedef struct Leaders
{
	uint32		n;
	int16	   *panels;
	int32	   *half_norm;		/* [n], and room for whole panels */
} Leaders;

static void
LeadersInit(Leaders *l, const PipeannFixed *f, const uint32 *ids,
			uint32 n)
{
	uint32		npanels = (n + COLUMNS - 1) / COLUMNS;
	const int16 *columns[COLUMNS];

	l->n = n;
	l->panels = PipeannArray(int16,
							 mul_size(mul_size(npanels, COLUMNS), f->dim));
	l->half_norm = PipeannAllocZero(mul_size(mul_size(npanels, COLUMNS),
											 sizeof(int32)));
	for (uint32 i = 0; i < n; i += COLUMNS)
	{
		int			count = Min(n - i, COLUMNS);

		for (int c = 0; c < count; c++)
		{
			columns[c] = PipeannFixedAt(f, ids[i + c]);
			l->half_norm[i + c] = PipeannFixedNorm(f, ids[i + c]);
		}
		PipeannFixedPanel(f, columns, count, l->panels + (Size) i * f->dim);
	}
}

/* The nearest leaders of up to ROWS vectors; half_norm[] is for ROWS. */
static void
AssignTile(const Leaders *l, const PipeannFixed *f, const int16 *const *rows,
		   const int32 *half_norm, int n, int fanout, uint16 *out)
{
	static const int32 no_limits[COLUMNS] = {0};
	int32		tile[ROWS * COLUMNS];
	int32		limits[ROWS];
	uint16		near[ROWS];
	int32		distance[ROWS][MAX_FANOUT];

	for (int r = 0; r < ROWS; r++)
	{
		limits[r] = INT32_MAX;
		for (int i = 0; i < fanout; i++)
			distance[r][i] = INT32_MAX;
	}
	for (uint32 j = 0; j < l->n; j += COLUMNS)
	{
		PipeannFixedTile(f, rows, l->panels + (Size) j * f->dim, tile);
		PipeannKernel->tile_near(half_norm, l->half_norm + j, limits,
								 no_limits, tile, near);
		for (int r = 0; r < n; r++)
		{
			uint32		hits = near[r];
			const int32 *d = tile + r * COLUMNS;

			if (j + COLUMNS > l->n)
				hits &= (1u << (l->n - j)) - 1;
			for (; hits != 0; hits &= hits - 1)
			{
				int			c = __builtin_ctz(hits);

				if (d[c] < distance[r][fanout - 1])
					PipeannInsertNearest(distance[r], out + r * fanout, fanout, d[c], j + c);
			}
			limits[r] = distance[r][fanout - 1];
		}
	}
}

/*
 * Sets out[n][fanout] to the nearest leaders of each of the vectors ids[n] (or
 * the first n if that is NULL), the nearest first. fanout must be at most the
 * number of leaders.
 */
static void
Assign(const Leaders *l, const PipeannFixed *f, const uint32 *ids, uint32 n,
	   int fanout, uint16 *out)
{
	const int16 *rows[ROWS];
	int32		half_norm[ROWS];

	Assert(fanout <= (int) l->n && fanout <= MAX_FANOUT);
	for (uint32 i = 0; i < n; i += ROWS)
	{
		int			count = Min(n - i, ROWS);

		CHECK_FOR_INTERRUPTS();
		for (int r = 0; r < ROWS; r++)
		{
			uint32		at = i + Min(r, count - 1);
			uint32		id = ids != NULL ? ids[at] : at;

			rows[r] = PipeannFixedAt(f, id);
			half_norm[r] = PipeannFixedNorm(f, id);
		}
		AssignTile(l, f, rows, half_norm, count, fanout,
				   out + (Size) i * fanout);
	}
}

/* ---------- cutting a set ---------- */

/* Parts of a cluster to which each member goes. */
#define SECOND_FANOUT 3

/* Sets smaller than this are combined. */
#define SMALL (PIPEANN_LEAF / 8)

/* If one part of a set has more than 15/16 of it, the set is cut arbitrarily. */
#define CUT_PART 16

/* Rows between two checks for interrupts. */
#define INTERRUPT_ROWS 65536

typedef struct Partition
{
	const PipeannFixed *fixed;
	PipeannReservoirs *reservoirs;
	PipeannLeafSpace *space;
	uint64		random;
	uint32		gathered[PIPEANN_LEAF]; /* of small sets */
	uint32		ngathered;
} Partition;

/* Make a leaf of the sets gathered so far. A node may be in several of them. */
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
	PipeannLeaf(p->space, p->fixed, p->gathered, n, 0, p->reservoirs);
	p->ngathered = 0;
}

/* The leaders of each of n rows. */
typedef struct Assignment
{
	uint32		n;
	int			fanout;
	uint16	   *leaders;		/* [n][fanout] */
	const uint8 *skip;			/* [n] rows to leave out, or NULL */
} Assignment;

/* Whether a row is not skipped. Checks for interrupts now and then. */
static inline bool
IsWanted(const Assignment *a, uint32 row)
{
	if (row % INTERRUPT_ROWS == 0)
		CHECK_FOR_INTERRUPTS();
	return a->skip == NULL || !a->skip[row];
}

/*
 * Group rows by their leaders, keeping their order; they are stored as ids[n],
 * or as their numbers if that is NULL. g has room, and zeroes in starts[].
 */
static void
Group(PipeannClusters *g, const Assignment *a, const uint32 *ids)
{
	uint32	   *at = PipeannArray(uint32, g->n);
	const uint16 *leaders = a->leaders;

	for (uint32 row = 0; row < a->n; row++, leaders += a->fanout)
		if (IsWanted(a, row))
			for (int k = 0; k < a->fanout; k++)
				g->starts[leaders[k] + 1]++;
	for (uint32 i = 0; i < g->n; i++)
	{
		g->starts[i + 1] += g->starts[i];
		at[i] = g->starts[i];
	}
	leaders = a->leaders;
	for (uint32 row = 0; row < a->n; row++, leaders += a->fanout)
		if (IsWanted(a, row))
			for (int k = 0; k < a->fanout; k++)
				g->ids[at[leaders[k]]++] = ids != NULL ? ids[row] : row;
	pfree(at);
}

static void
Divide(Partition *p, PipeannClusters *g, const uint32 *ids, uint32 n,
	   int fanout)
{
	Leaders		leaders;
	Assignment	a = {.n = n};
	Size		total;
	uint32		most = Min(MOST_LEADERS, MaxLeaders(p->fixed->dim));
	uint32		count = Max(Min((n + LEADER_PART - 1) / LEADER_PART, most), 2);
	uint32	   *sample = PipeannArray(uint32, count);

	/* leaders among ids[n], one from each of equal parts */
	for (uint32 i = 0; i < count; i++)
	{
		uint32		from = PipeannPartOf(n, i, count);
		uint32		to = PipeannPartOf(n, i + 1, count);

		sample[i] = ids[from + PipeannRandomBelow(&p->random, to - from)];
	}
	LeadersInit(&leaders, p->fixed, sample, count);
	pfree(sample);
	a.fanout = Min(fanout, (int) leaders.n);
	total = mul_size(n, a.fanout);
	a.leaders = PipeannArray(uint16, total);
	Assign(&leaders, p->fixed, ids, n, a.fanout, a.leaders);
	g->n = leaders.n;
	g->starts = PipeannAllocZero(mul_size((Size) g->n + 1, sizeof(uint32)));
	g->ids = PipeannArray(uint32, total);
	Group(g, &a, ids);
	pfree(a.leaders);
	pfree(leaders.panels);
	pfree(leaders.half_norm);
}

static void
Cut(Partition *p, const uint32 *ids, uint32 n, int fanout)
{
	PipeannClusters groups;

	if (n <= PIPEANN_LEAF)
	{
		if (n < SMALL)
		{
			if (p->ngathered + n > PIPEANN_LEAF)
				CloseGathered(p);
			memcpy(p->gathered + p->ngathered, ids, n * sizeof(uint32));
			p->ngathered += n;
		}
		else
			PipeannLeaf(p->space, p->fixed, ids, n, 0, p->reservoirs);
		return;
	}
	Divide(p, &groups, ids, n, fanout);
	for (uint32 g = 0; g < groups.n; g++)
	{
		const uint32 *members = groups.ids + groups.starts[g];
		uint32		count = groups.starts[g + 1] - groups.starts[g];

		if (count <= n - n / CUT_PART)
			Cut(p, members, count, 1);
		else	/* leaders do not separate them: for instance, many are equal */
			for (uint32 i = 0; i < count; i += PIPEANN_LEAF)
				PipeannLeaf(p->space, p->fixed, members + i,
							Min(count - i, PIPEANN_LEAF), 0, p->reservoirs);
	}
	pfree(groups.starts);
	pfree(groups.ids);
}

/*
 * Candidates that a leaf finds for a node whose reservoir has DEFAULT_PLACES, as for the
 * default ef_construction; in proportion for others.
 */
#define NEAREST 3
#define DEFAULT_PLACES 88

/* Up to this many bit strings are compared all with all: fewer pairs than in leaves. Vectors would get worse edges. */
#define MOST_COMPARED 4096

/*
 * Compare all pairs of nodes: each part of them is a leaf, and so are every two, of which
 * only nodes of different parts are compared.
 */
static void
CompareAll(PipeannTeam *team, const PipeannFixed *f, PipeannReservoirs *r)
{
	uint32		parts = f->n <= PIPEANN_LEAF ? 1 : (f->n + PIPEANN_LEAF / 2 - 1) / (PIPEANN_LEAF / 2);
	/* a few less than fit are enough, as no nearer one is missed */
	int			nearest = Max(r->places * (parts > 1 ? 5 : 8) / 8 / (int) parts, 2);
	PipeannLeafSpace *space = PipeannLeafSpaceNew(f->dim, nearest, r->places);

	PipeannTeamEach(team, pair, parts * parts, 1)
	{
		uint32		a = pair / parts;
		uint32		b = pair % parts;
		uint32		ids[PIPEANN_LEAF];
		uint32		n = 0;
		uint32		first;

		if (a > b)
			continue;
		/* near numbers are apart, as a node takes as many from each part */
		for (uint32 i = a; i < f->n; i += parts)
			ids[n++] = i;
		first = n;
		for (uint32 i = b; a != b && i < f->n; i += parts)
			ids[n++] = i;
		PipeannLeaf(space, f, ids, n, a != b ? first : 0, r);
	}
	PipeannLeafSpaceFree(space);
}

/*
 * Cut the clusters first .. end - 1 into leaves, and offer near members of each
 * leaf to one another's reservoirs. All members call.
 */
void
PipeannCutClusters(PipeannTeam *team, const PipeannFixed *f,
				   const PipeannClusters *c, uint32 first, uint32 end,
				   uint64 seed, PipeannReservoirs *r)
{
	Partition	p = {.fixed = f,.reservoirs = r};

	if (f->n <= PIPEANN_LEAF ||
		(f->scale->bits && f->n <= MOST_COMPARED && first == 0 && end == c->n))
	{
		CompareAll(team, f, r);
		return;
	}
	p.space = PipeannLeafSpaceNew(f->dim,
								  Max(r->places * NEAREST / DEFAULT_PLACES, 2),
								  r->places);
	PipeannTeamEach(team, i, end - first, 1)
	{
		const uint32 *starts = c->starts + first + i;

		p.random = seed + first + i;
		Cut(&p, c->ids + starts[0], starts[1] - starts[0], SECOND_FANOUT);
		CloseGathered(&p);
	}
	PipeannLeafSpaceFree(p.space);
}

/* ---------- clusters ---------- */

/* Vectors that one member assigns at a time. */
#define SLICE 1020

typedef struct Clustering
{
	const PipeannVectors *rows;
	PipeannClusters *clusters;
	Leaders		leaders;
	Assignment	assigned;
} Clustering;

/* A leader and its distances from two ends, to halve a set of leaders. */
typedef struct Halving
{
	int32		between;		/* distance from one end minus that from the other */
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

/* Halve the set between two ends far apart, and then its halves. */
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

static void
AssignRows(PipeannTeam *team, Clustering *c)
{
	Assignment *a = &c->assigned;
	PipeannFixed f;

	PipeannFixedInit(NULL, &c->clusters->scale, c->rows, SLICE, &f);
	PipeannTeamSlices(team, from, to, a->n, SLICE)
	{
		for (uint32 row = from; row < to; row++)
			PipeannFixedSet(&f, row - from, c->rows, row);
		Assign(&c->leaders, &f, NULL, to - from, a->fanout,
			   a->leaders + from * a->fanout);
	}
	PipeannFixedFree(NULL, &f);
}

/* Number rows that are not skipped, by their homes, of which there are n. */
static void
NumberRows(const Clustering *c, uint32 n, uint32 *number)
{
	const Assignment *a = &c->assigned;
	uint32	   *next = PipeannAllocZero(mul_size(n, sizeof(uint32)));
	uint32		at = 0;

	for (uint32 row = 0; row < a->n; row++)
		if (IsWanted(a, row))
			next[a->leaders[(Size) row * a->fanout]]++;
	for (uint32 i = 0; i < n; i++)
	{
		uint32		rows = next[i];

		next[i] = at;
		at += rows;
	}
	for (uint32 row = 0; row < a->n; row++)
		if (IsWanted(a, row))
			number[row] = next[a->leaders[(Size) row * a->fanout]]++;
	pfree(next);
}

static void
Cluster(PipeannTeam *team, Clustering *c, uint64 seed, uint32 *number)
{
	PipeannClusters *clusters = c->clusters;
	Assignment *a = &c->assigned;
	Size		total;
	PipeannFixed f;
	Halving	   *h = PipeannArray(Halving, clusters->n);
	uint32	   *ids = PipeannArray(uint32, clusters->n);

	a->fanout = Min(clusters->n, PIPEANN_FANOUT);
	total = mul_size(a->n, a->fanout);
	/* all members sample the same leaders */
	PipeannFixedInit(NULL, &c->clusters->scale, c->rows, clusters->n, &f);
	for (uint32 i = 0; i < clusters->n; i++)
	{
		uint32		from = PipeannPartOf(c->rows->n, i, clusters->n);
		uint32		to = PipeannPartOf(c->rows->n, i + 1, clusters->n);
		uint32		row = from + PipeannRandomBelow(&seed, to - from);
		uint32		wanted = row;

		/* one that is not skipped, if there is one */
		while (a->skip != NULL && wanted < to && a->skip[wanted])
			wanted++;
		PipeannFixedSet(&f, i, c->rows, wanted < to ? wanted : row);
		h[i].leader = i;
	}
	OrderLeaders(&f, h, clusters->n);
	for (uint32 i = 0; i < clusters->n; i++)
		ids[i] = h[i].leader;
	LeadersInit(&c->leaders, &f, ids, clusters->n);
	PipeannFixedFree(NULL, &f);
	pfree(h);
	pfree(ids);
	a->leaders = PipeannTeamArray(team, uint16, total);
	AssignRows(team, c);
	pfree(c->leaders.panels);
	pfree(c->leaders.half_norm);
	clusters->starts = PipeannTeamArray(team, uint32, (Size) clusters->n + 1);
	clusters->ids = PipeannTeamArray(team, uint32, total);
	if (PipeannTeamLeads(team))
	{
		if (number != NULL)
			NumberRows(c, clusters->n, number);
		Group(clusters, a, number);
	}
	PipeannTeamMeet(team);
	PipeannTeamFree(team, a->leaders);
}

PipeannClusters *
PipeannClustersNew(PipeannTeam *team, const PipeannVectors *rows,
				   const uint8 *skip, uint64 seed, uint32 *number)
{
	PipeannClusters *clusters = palloc0(sizeof(PipeannClusters));
	Clustering	c = {
		.rows = rows,.clusters = clusters,.assigned = {.n = rows->n,.skip = skip}
	};

	PipeannFixedScaleInit(&clusters->scale, rows, seed);
	if (rows->n > PIPEANN_LEAF)
	{
		clusters->n = Min(rows->n / LEADER_PART,
						  MaxLeaders(PipeannRowWords(&clusters->scale, rows->stride)));
		Cluster(team, &c, seed, number);
	}
	else
	{
		uint32		n = 0;

		if (number != NULL && PipeannTeamLeads(team))
			for (uint32 row = 0; row < rows->n; row++)
				if (skip == NULL || !skip[row])
					number[row] = n++;
		PipeannTeamMeet(team);
	}
	return clusters;
}

void
PipeannClustersFree(PipeannTeam *team, PipeannClusters *clusters)
{
	PipeannTeamFree(team, clusters->starts);
	PipeannTeamFree(team, clusters->ids);
	pfree(clusters->scale.offset);
	pfree(clusters->scale.planes);
	pfree(clusters);
}
