/*
 * clusters.c
 *		Vectors in fixed point (internal.h); their partition into clusters, and
 *		that of clusters into leaves (PiPNN, arXiv 2602.21247, section 3).
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

#include <math.h>

#include "base/random.h"
#include "graph/internal.h"

/* ---------- vectors in fixed point ---------- */

/* Rows of the sample for offset and scale; and if these are needed only for sketches. */
#define MAX_SAMPLE 4096
#define FEW_SAMPLES 256

/* One in this many rows may be farther from the mean than usual. */
#define FEW_FAR 20

/* Rounds in which mean and usual distance are found. */
#define ROUNDS 3

/*
 * The usual distance from the mean becomes SPREAD. No vector is longer than
 * LONGEST: then squared distances fit 32 bits, and elements 16.
 */
#define SPREAD 8000.0
#define LONGEST ((double) PIPEANN_FIXED_MAX)

/* Elements of hyperplanes are within -PLANE .. PLANE. */
#define PLANE 127

/* Shifts a usual vector's product with a hyperplane into the 16 bits of a sketch. */
#define SKETCH_SHIFT 7

/* Vectors that one member converts at a time. */
#define FIXED_RUN 256

/* Where item i of m even parts of n begins. */
static inline uint32
PartOf(uint32 n, uint32 i, uint32 m)
{
	return (uint32) ((uint64) n * i / m);
}

/*
 * The embedded vector as floats, x[dim or dim + 1]; a quantised one as it is
 * stored, rotated, which does not change distances.
 */
static void
Embed(const PipeannVectors *v, uint32 i, float *x)
{
	PipeannKernel->to_float[v->storage] (PipeannVectorAt(v, i), v->dim, x);
	if (v->metric == PIPEANN_COSINE)
		for (int d = 0; d < v->dim; d++)
			x[d] *= v->aux[i];
	if (v->metric == PIPEANN_IP)
		x[v->dim] = v->aux[i];
}

/* How far x is from the mean. */
static double
DistanceFromMean(const PipeannFixedScale *s, const float *x)
{
	double		squares = 0;

	for (int d = 0; d < s->dim; d++)
		squares += pow((double) x[d] - s->offset[d], 2);
	return sqrt(squares);
}

static int
CompareDoubles(const void *a, const void *b)
{
	double		x = *(const double *) a;
	double		y = *(const double *) b;

	return x < y ? -1 : x > y;
}

/* The distance that all but one of FEW_FAR do not exceed. */
static double
UsualDistance(const double *distance, uint32 m)
{
	double	   *sorted = PipeannArray(double, Max(m, 1));
	double		usual;

	memcpy(sorted, distance, m * sizeof(double));
	qsort(sorted, m, sizeof(double), CompareDoubles);
	usual = m > 0 ? sorted[m - 1 - m / FEW_FAR] : 0;
	pfree(sorted);
	return usual;
}

/*
 * A few vectors far from all others, such as broken rows, must not make the
 * others small, so mean and spread ignore them.
 */
static void
SetOffsetAndScale(PipeannFixedScale *s, const PipeannVectors *v)
{
	uint32		m = Min(v->n, PipeannComparesStored(v) ? FEW_SAMPLES : MAX_SAMPLE);
	float	   *x = PipeannArray(float, s->dim);
	double	   *distance = PipeannAllocZero(mul_size(Max(m, 1),
													 sizeof(double)));
	double		usual = 0;

	for (int round = 0; round < ROUNDS; round++)
	{
		double	   *sum = PipeannAllocZero(mul_size(s->dim, sizeof(double)));
		uint32		n = 0;

		/* set s->offset to the mean of the rows whose distance[] is at most usual */
		for (uint32 k = 0; k < m; k++)
		{
			CHECK_FOR_INTERRUPTS();
			if (distance[k] > usual)
				continue;
			Embed(v, PartOf(v->n, k, m), x);
			for (int d = 0; d < s->dim; d++)
				sum[d] += x[d];
			n++;
		}
		for (int d = 0; d < s->dim; d++)
			s->offset[d] = n > 0 ? (float) (sum[d] / n) : 0;
		pfree(sum);
		for (uint32 k = 0; k < m; k++)
		{
			CHECK_FOR_INTERRUPTS();
			Embed(v, PartOf(v->n, k, m), x);
			distance[k] = DistanceFromMean(s, x);
		}
		usual = UsualDistance(distance, m);
	}
	s->scale = usual > 0 ? (float) (SPREAD / usual) : 1;
	pfree(distance);
	pfree(x);
}

/* Distances of bits from random strings are projections to axes with elements of 1 and -1. */
static void
MakeStrings(PipeannFixedScale *s, const PipeannVectors *v, uint64 seed)
{
	Size		bytes = PipeannVectorBytes(v->storage, v->dim);
	uint8	   *strings = PipeannAlloc(mul_size(bytes, PIPEANN_SKETCH + 1));

	s->planes = (int16 *) strings;
	for (int i = 0; i <= PIPEANN_SKETCH; i++)
		s->strings[i] = strings + i * bytes;
	for (Size i = 0; i < bytes * PIPEANN_SKETCH; i++)
		strings[i] = (uint8) (PipeannRandomNext(&seed) >> 32);
	for (int d = 0; d < v->dim; d++)
		s->offset[d] = s->offset[d] > 0.5f;
	PipeannVectorFromFloat(s->offset, PIPEANN_BITS, v->dim, strings + PIPEANN_SKETCH * bytes);
}

void
PipeannFixedScaleInit(PipeannFixedScale *s, const PipeannVectors *v, uint64 seed)
{
	s->dim = v->dim + (v->metric == PIPEANN_IP);
	s->fixed_dim = (s->dim + 1) / 2 * 2;
	s->offset = PipeannArray(float, s->dim);
	s->pair = NULL;
	s->bits = v->storage == PIPEANN_BITS;
	SetOffsetAndScale(s, v);
	if (s->bits)
		MakeStrings(s, v, seed);
	else
	{
		/* the sum of four uniform numbers is close enough to normally distributed */
		s->planes = PipeannArray(int16, mul_size(s->fixed_dim, PIPEANN_SKETCH));
		for (int i = 0; i < s->fixed_dim * PIPEANN_SKETCH; i++)
		{
			int			sum = 0;

			for (int k = 0; k < 4; k++)
				sum += (int) PipeannRandomBelow(&seed, 2 * PLANE + 1) - PLANE;
			s->planes[i] = (int16) (sum / 4);
		}
	}
	if (PipeannComparesStored(v))
	{
		uint32		m = Min(v->n, MAX_SAMPLE);
		double	   *distance = PipeannArray(double, Max(m, 1));
		double		usual;

		/* scale the usual distance as in fixed point; Manhattan distances are squared */
		s->pair = PipeannPairKernel(v->metric, v->storage);
		s->jaccard = v->metric == PIPEANN_JACCARD;
		s->squared = v->metric == PIPEANN_L1;
		for (uint32 k = 0; k < m; k++)
			distance[k] = s->pair(PipeannVectorAt(v, PartOf(v->n, k, m)),
								  PipeannVectorAt(v, PartOf(v->n, (k + 1) % m, m)), v->dim);
		usual = UsualDistance(distance, m);
		s->pair_scale = usual > 0 ? (s->squared ? SPREAD : SPREAD * SPREAD) / usual : 1;
		pfree(distance);
	}
}

/* int16 numbers of a row. */
static int
RowWords(const PipeannFixedScale *s, Size stored)
{
	return s->pair == NULL ? s->fixed_dim : (int) ((stored + 1) / sizeof(int16));
}

static double
Square(const int16 *x, int dim)
{
	int64		sum = 0;

	for (int d = 0; d < dim; d++)
		sum += (int32) x[d] * x[d];
	return (double) sum;
}

/*
 * Room for n vectors like v's; for all of v's own, which need no copies where stored
 * vectors are compared, if there is a team, whose members all call.
 */
void
PipeannFixedInit(PipeannTeam *team, const PipeannFixedScale *s, const PipeannVectors *v,
				 uint32 n, PipeannFixed *f)
{
	bool		own = team == NULL || s->pair == NULL;

	f->scale = s;
	f->n = n;
	f->row_bytes = PipeannVectorBytes(v->storage, v->dim);
	f->dim = RowWords(s, f->row_bytes);
	f->stride = own ? f->dim * sizeof(int16) : v->stride;
	f->own_rows = own ? PipeannTeamAlloc(team, mul_size(n, f->stride)) : NULL;
	f->rows = own ? f->own_rows : v->data;
	f->half_norm = PipeannTeamArray(team, int32, n);
	f->sketch = NULL;
	f->float_x = PipeannArray(float, s->dim);
}

/* Row r of v in fixed point, at out; returns half of its squared length. */
static int32
InFixedPoint(const PipeannFixed *f, const PipeannVectors *v, uint32 r, int16 *out)
{
	const PipeannFixedScale *s = f->scale;
	float	   *x = f->float_x;
	double		square;

	Embed(v, r, x);
	PipeannKernel->to_fixed(x, s->offset, s->scale, s->dim, out);
	if (s->fixed_dim > s->dim)
		out[s->dim] = 0;
	square = Square(out, s->dim);
	if (square > LONGEST * LONGEST)
	{
		float		shorter = LONGEST * 0.999 / DistanceFromMean(s, x);

		PipeannKernel->to_fixed(x, s->offset, shorter, s->dim, out);
		square = Square(out, s->dim);
	}
	/* elements near the largest float: their differences are infinite or NaN */
	if (square > LONGEST * LONGEST)
	{
		memset(out, 0, s->dim * sizeof(int16));
		square = 0;
	}
	return (int32) (square / 2);
}

/* Set vector i to row r of v. */
void
PipeannFixedSet(PipeannFixed *f, uint32 i, const PipeannVectors *v, uint32 r)
{
	int16	   *at = (int16 *) PipeannFixedAt(f, i);

	if (f->scale->pair == NULL)
		f->half_norm[i] = InFixedPoint(f, v, r, at);
	else
		memcpy(at, PipeannVectorAt(v, r), f->row_bytes);
}

/* All vectors, with sketches. All members call. */
void
PipeannFixedMake(PipeannTeam *team, const PipeannFixedScale *s,
				 const PipeannVectors *v, PipeannFixed *f)
{
	int16	   *run = s->pair == NULL || s->bits ? NULL :
		PipeannArray(int16, FIXED_RUN * s->fixed_dim);

	PipeannFixedInit(team, s, v, v->n, f);
	f->sketch = PipeannTeamArray(team, int16, mul_size(v->n, PIPEANN_SKETCH));
	PipeannTeamRuns(team, from, to, v->n, FIXED_RUN)
	{
		int16	   *x = run != NULL ? run : (int16 *) PipeannFixedAt(f, from);
		int			n = to - from;
		int16	   *sketch = f->sketch + from * PIPEANN_SKETCH;
		const int16 *rows[PIPEANN_TILE_ROWS];
		int32		dot[PIPEANN_TILE_ROWS * PIPEANN_TILE_COLUMNS];

		for (uint32 i = from; s->bits && i < to; i++)
		{
			float		d[PIPEANN_SKETCH + 1];

			PipeannKernel->bit_scan(PipeannVectorAt(v, i), (int) f->row_bytes,
									s->strings, PIPEANN_SKETCH + 1, false, d);
			for (int k = 0; k < PIPEANN_SKETCH; k++)
				*sketch++ = (int16) (d[k] - v->dim / 2);
			f->half_norm[i] = (int32) d[PIPEANN_SKETCH];
		}
		if (s->bits)
			continue;
		for (uint32 i = from; i < to; i++)
			f->half_norm[i] = InFixedPoint(f, v, i, x + (i - from) * s->fixed_dim);
		for (; n > 0; n -= PIPEANN_TILE_ROWS)
		{
			int			count = Min(n, PIPEANN_TILE_ROWS);

			for (int r = 0; r < PIPEANN_TILE_ROWS; r++)
				rows[r] = x + (Size) Min(r, count - 1) * s->fixed_dim;
			PipeannKernel->dot_tile(rows, s->planes, s->fixed_dim, dot);
			for (int k = 0; k < count * PIPEANN_SKETCH; k++)
				*sketch++ = (int16) Max(Min(dot[k] >> SKETCH_SHIFT, INT16_MAX), INT16_MIN);
			x += (Size) count * s->fixed_dim;
		}
	}
	if (run != NULL)
		pfree(run);
}

void
PipeannFixedFree(PipeannTeam *team, PipeannFixed *f)
{
	PipeannTeamFree(team, f->own_rows);
	PipeannTeamFree(team, f->half_norm);
	PipeannTeamFree(team, f->sketch);
	pfree(f->float_x);
}

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

/* The nearest leaders of a row of a tile, the nearest first. */
typedef struct Nearest
{
	int			n;
	int32		distance[MAX_FANOUT];
	uint16		leader[MAX_FANOUT];
} Nearest;

static inline int32
Limit(const Nearest *nearest, int fanout)
{
	return nearest->n < fanout ? INT32_MAX : nearest->distance[fanout - 1];
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
	Nearest		nearest[ROWS];

	for (int r = 0; r < ROWS; r++)
	{
		nearest[r].n = 0;
		limits[r] = INT32_MAX;
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

				if (d[c] < Limit(&nearest[r], fanout))
				{
					int			at = nearest[r].n < fanout ? nearest[r].n++ : fanout - 1;

					for (; at > 0 && nearest[r].distance[at - 1] > d[c]; at--)
					{
						nearest[r].distance[at] = nearest[r].distance[at - 1];
						nearest[r].leader[at] = nearest[r].leader[at - 1];
					}
					nearest[r].distance[at] = d[c];
					nearest[r].leader[at] = j + c;
				}
			}
			limits[r] = Limit(&nearest[r], fanout);
		}
	}
	for (int r = 0; r < n; r++)
		memcpy(out + r * fanout, nearest[r].leader, fanout * sizeof(uint16));
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
	PipeannLeaf(p->space, p->fixed, p->gathered, n, p->reservoirs);
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
		uint32		from = PartOf(n, i, count);
		uint32		to = PartOf(n, i + 1, count);

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
			PipeannLeaf(p->space, p->fixed, ids, n, p->reservoirs);
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
							Min(count - i, PIPEANN_LEAF), p->reservoirs);
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

/* All pairs of this many strings of bits are fewer than those of their leaves. Vectors get worse edges so. */
#define MOST_COMPARED 4096
#define HALF_LEAF (PIPEANN_LEAF / 2)

/* Compare all nodes: each two parts of them are a leaf. Near nodes come to be in different parts. */
static void
CompareAll(PipeannTeam *team, const PipeannFixed *f, PipeannReservoirs *r)
{
	uint32		parts = Max((f->n + HALF_LEAF - 1) / HALF_LEAF, 2);
	int			nearest = Max(r->places / (int) (parts - 1), 2);
	PipeannLeafSpace *space = PipeannLeafSpaceNew(f->dim, nearest, r->places);

	PipeannTeamEach(team, pair, parts * parts, 1)
	{
		uint32		ids[PIPEANN_LEAF];
		uint32		n = 0;

		if (pair / parts >= pair % parts)
			continue;
		for (uint32 i = 0; i < f->n; i++)
			if (i % parts == pair / parts || i % parts == pair % parts)
				ids[n++] = i;
		PipeannLeaf(space, f, ids, n, r);
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
#define RUN 1020

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

/* A row from .. to - 1 that is not skipped, if there is one. */
static uint32
PickRow(const Clustering *c, uint32 from, uint32 to, uint64 *seed)
{
	uint32		row = from + PipeannRandomBelow(seed, to - from);

	for (uint32 i = row; c->assigned.skip != NULL && i < to; i++)
		if (!c->assigned.skip[i])
			return i;
	return row;
}

static void
AssignRows(PipeannTeam *team, Clustering *c)
{
	Assignment *a = &c->assigned;
	PipeannFixed f;

	PipeannFixedInit(NULL, &c->clusters->scale, c->rows, RUN, &f);
	PipeannTeamRuns(team, from, to, a->n, RUN)
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
		uint32		from = PartOf(c->rows->n, i, clusters->n);
		uint32		to = PartOf(c->rows->n, i + 1, clusters->n);

		PipeannFixedSet(&f, i, c->rows, PickRow(c, from, to, &seed));
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
						  MaxLeaders(RowWords(&clusters->scale, rows->stride)));
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
