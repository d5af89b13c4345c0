/*
 * internal.h
 *		Vectors in fixed point, reservoirs of candidates, and the measure of a graph;
 *		private to graph/.
 *
 * Where a build only looks for candidates it measures distances between
 * vectors of 16-bit integers: the embedded vectors (graph.h), moved so that
 * their mean is zero, and scaled. The integer products of a block of vectors
 * take half the time of floats, and are the same on every processor. The error
 * of a distance is about a ten-thousandth of the vectors' spread. A vector
 * much longer than the others is shortened: its direction is kept.
 *
 * Bits, and vectors by Manhattan distance, are compared as they are stored: tiles then
 * have negated distances, and norms are 0.
 *
 * A node's reservoir has places for a fixed number of candidates. Of those with
 * the same hash, which lie in the same direction, it keeps the nearest; and of
 * these the nearest that fit. So its final contents do not depend on the order in
 * which candidates are offered, nor on the process; and reservoirs that were
 * offered different candidates can be merged. Ties go to the lower id.
 */
#ifndef PIPEANN_GRAPH_INTERNAL_H
#define PIPEANN_GRAPH_INTERNAL_H

#include "base/metric.h"
#include "base/team.h"
#include "graph/graph.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* The number of hyperplanes for which a sketch has an element. */
#define PIPEANN_SKETCH 16

/* The number of these that distinguish directions (PiPNN: 12 to 14). */
#define PIPEANN_HASH_BITS 14

/* Where item i of m even parts of n begins. */
static inline uint32
PipeannPartOf(uint32 n, uint32 i, uint32 m)
{
	return (uint32) ((uint64) n * i / m);
}

/* How vectors are converted to fixed point. */
typedef struct PipeannFixedScale
{
	int			dim;			/* of embedded vectors */
	int			fixed_dim;		/* dim, made even */
	float	   *offset;			/* [dim]; of bits packed */
	float		scale;
	int16	   *planes;			/* hyperplanes, as a panel (distance/dispatch.c) */

	/* Where stored vectors are compared instead; sketches are still of fixed point: */
	PipeannPairFn pair;			/* their distance; or NULL */
	float		pair_scale;		/* scales it to the range of fixed point */
	bool		squared;		/* it is also squared: a Manhattan distance */
	bool		bits;			/* planes are random strings, from which a sketch has distances */
	bool		jaccard;
} PipeannFixedScale;

typedef struct PipeannFixed
{
	const PipeannFixedScale *scale;
	uint32		n;
	int			dim;			/* int16 numbers of a row, even */
	Size		row_bytes;
	Size		stride;
	const char *rows;			/* [n] in fixed point, or as they are stored */
	void	   *own_rows;		/* rows[], or NULL if they are the caller's */
	int32	   *half_norm;		/* [n] half of the squared length in fixed point */
	int16	   *sketch;			/* [n][PIPEANN_SKETCH], or NULL */
	float	   *float_x;		/* work space for one vector */
} PipeannFixed;

static inline const int16 *
PipeannFixedAt(const PipeannFixed *f, uint32 i)
{
	return (const int16 *) (f->rows + i * f->stride);
}

/*
 * Half of the squared distance of two vectors with inner product dot; or of
 * two vectors by number.
 */
static inline int32
PipeannFixedDistance(int32 half_norm_a, int32 half_norm_b, int32 dot)
{
	int32		d = half_norm_a + half_norm_b - dot;

	return Max(d, 0);
}

/* Half of the squared length of rows in fixed point; 0 for others. */
static inline int32
PipeannFixedNorm(const PipeannFixed *f, uint32 i)
{
	return f->scale->pair != NULL ? 0 : f->half_norm[i];
}

/* Convert a distance of two stored vectors, which may be infinite, to one below all limits. */
static inline int32
PipeannStoredDistance(const PipeannFixedScale *s, float distance)
{
	float		d = distance * s->pair_scale;

	if (s->squared)
		d *= d;
	return d < INT32_MAX - 127 ? (int32) d : INT32_MAX - 1;
}

static inline int32
PipeannFixedPair(const PipeannFixed *f, uint32 a, uint32 b)
{
	const int16 *x = PipeannFixedAt(f, a);
	const int16 *y = PipeannFixedAt(f, b);
	int32		dot = 0;

	if (f->scale->pair != NULL)
		return PipeannStoredDistance(f->scale, f->scale->pair(x, y, f->scale->dim));
	for (int d = 0; d < f->dim; d++)
		dot += (int32) x[d] * y[d];
	return PipeannFixedDistance(f->half_norm[a], f->half_norm[b], dot);
}

/* A panel of up to 16 rows. */
static inline void
PipeannFixedPanel(const PipeannFixed *f, const int16 *const *columns, int n,
				  int16 *panel)
{
	if (f->scale->pair == NULL || f->scale->bits)
	{
		PipeannTilePanel(columns, n, f->dim, panel);
		return;
	}
	memset(panel, 0, PIPEANN_PANEL_SIZE(f->dim) * sizeof(int16));
	for (int c = 0; c < n; c++)
		memcpy(panel + (Size) c * f->dim, columns[c], f->row_bytes);
}

/* Compute a tile of inner products, or of negated distances. */
static inline void
PipeannFixedTile(const PipeannFixed *f, const int16 *const *rows, const int16 *panel,
				 int32 *out)
{
	const PipeannFixedScale *s = f->scale;
	const int	size = PIPEANN_TILE_ROWS * PIPEANN_TILE_COLUMNS;
	int32		common[PIPEANN_TILE_ROWS * PIPEANN_TILE_COLUMNS];

	if (s->pair == NULL)
		PipeannKernel->dot_tile(rows, panel, f->dim, out);
	else if (s->bits)
		PipeannKernel->bit_tile(rows, panel, f->dim, false, out);
	if (s->jaccard)
	{
		PipeannKernel->bit_tile(rows, panel, f->dim, true, common);
		for (int i = 0; i < size; i++)
			out[i] = -PipeannStoredDistance(s, PipeannJaccard(out[i], common[i]));
	}
	else if (s->bits)
	{
		int32		scale = (int32) s->pair_scale;

		for (int i = 0; i < size; i++)
			out[i] *= -scale;
	}
	else if (s->pair != NULL)
		for (int i = 0; i < size; i++)
			out[i] = -PipeannStoredDistance(s, s->pair(rows[i / PIPEANN_TILE_COLUMNS],
													   panel + (Size) (i % PIPEANN_TILE_COLUMNS) * f->dim,
													   s->dim));
}

/*
 * The side of each hyperplane on which b lies as seen from a: neighbours in
 * similar directions get the same number (PiPNN, HashPrune).
 */
static inline uint16
PipeannSketchHash(const int16 *a, const int16 *b)
{
	uint16		hash = 0;

#if defined(__SSE2__)
	const __m128i *x = (const __m128i *) a;
	const __m128i *y = (const __m128i *) b;
	__m128i		low = _mm_cmpgt_epi16(_mm_loadu_si128(y),
									  _mm_loadu_si128(x));
	__m128i		high = _mm_cmpgt_epi16(_mm_loadu_si128(y + 1),
									   _mm_loadu_si128(x + 1));

	hash = (uint16) _mm_movemask_epi8(_mm_packs_epi16(low, high));
#else
	for (int i = 0; i < PIPEANN_SKETCH; i++)
		hash |= (uint16) (b[i] > a[i]) << i;
#endif
	return hash & ((1 << PIPEANN_HASH_BITS) - 1);
}

/*
 * Vectors nearer than this (half of the squared distance) have sketches that
 * are equal or differ only by rounding: these show no direction.
 */
#define PIPEANN_VERY_NEAR 128

/*
 * The hash of such a near candidate: a random one of nhashes, a power of 2,
 * that no sketch has. So a node keeps many of a group of nearly equal nodes,
 * and each node of the group keeps different ones.
 */
static inline uint16
PipeannNearHash(uint32 a, uint32 b, int nhashes)
{
	uint32		mixed = (a ^ b) * UINT32_C(0x9E3779B1);

	return (uint16) ((1 << PIPEANN_HASH_BITS) | (mixed >> 16 & (nhashes - 1)));
}

/* int16 numbers of a row: tiles take two at once. */
static inline int
PipeannRowWords(const PipeannFixedScale *s, Size stored)
{
	return s->pair == NULL ? s->fixed_dim : (int) ((stored + 3) / 4 * 2);
}

/* fixed.c */
extern void PipeannFixedScaleInit(PipeannFixedScale *s,
								  const PipeannVectors *v, uint64 seed);
extern void PipeannFixedInit(PipeannTeam *team, const PipeannFixedScale *s,
							 const PipeannVectors *v, uint32 n, PipeannFixed *f);
extern void PipeannFixedSet(PipeannFixed *f, uint32 i, const PipeannVectors *v,
							uint32 r);
extern void PipeannFixedMake(PipeannTeam *team, const PipeannFixedScale *s,
							 const PipeannVectors *v, PipeannFixed *f);

static inline void
PipeannFixedFree(PipeannTeam *team, PipeannFixed *f)
{
	PipeannTeamFree(team, f->own_rows);
	PipeannTeamFree(team, f->half_norm);
	PipeannTeamFree(team, f->sketch);
	pfree(f->float_x);
}

/* Bytes of a vector with its norm and sketch; only v's description is used, not its data. */
static inline Size
PipeannFixedMemory(const PipeannVectors *v)
{
	/* bits are copied if their bytes are not whole words, which tiles take */
	Size		row = !PipeannComparesStored(v) ? (v->dim + 3) / 2 * 2 * sizeof(int16) :
		v->storage == PIPEANN_BITS && v->dim % 32 != 0 ? (Size) (v->dim + 31) / 32 * 4 : 0;

	return row + sizeof(int32) + PIPEANN_SKETCH * sizeof(int16);
}

/* ---------- the nearest candidates of each node ---------- */

/*
 * Put one at distance d, less than the last one's, into lists of the n nearest, behind
 * others at the same distance.
 */
static inline void
PipeannInsertNearest(int32 *distance, uint16 *number, int n, int32 d, uint16 own)
{
	int			at = n - 1;

	for (; at > 0 && distance[at - 1] > d; at--)
	{
		distance[at] = distance[at - 1];
		number[at] = number[at - 1];
	}
	distance[at] = d;
	number[at] = own;
}

/* The most vectors of a leaf. */
#define PIPEANN_LEAF 512

/* The hash of an empty place. */
#define PIPEANN_NO_HASH PG_UINT16_MAX

/* The number of places searched together. */
#define PIPEANN_RESERVOIR_GROUP 8

typedef struct PipeannReservoirs
{
	uint32		n;
	int			places;			/* of each, a multiple of the group */
	char	   *data;			/* [n] of ids, hashes and distances */
	uint16	   *bound;			/* [n] distance of the farthest if full */
	uint8	   *locks;			/* [n] held while a reservoir is changed */
	bool		shared;			/* between processes */
	const uint32 *slot;			/* [nodes] of each node's reservoir; NULL:
								 * the node's number minus first */
	uint32		first;
} PipeannReservoirs;

static inline Size
PipeannPlacesSize(int places)
{
	return (Size) places * (sizeof(uint32) + 2 * sizeof(uint16));
}

/* Bytes of one reservoir. */
static inline Size
PipeannReservoirMemory(int places)
{
	return PipeannPlacesSize(places) + sizeof(uint16) + 1;
}

/* The reservoir of a node. */
static inline uint32
PipeannReservoirOf(const PipeannReservoirs *r, uint32 node)
{
	return r->slot != NULL ? r->slot[node] : node - r->first;
}

/* The distance beyond which a node's reservoir currently takes no candidates. */
static inline uint16
PipeannReservoirBound(const PipeannReservoirs *r, uint32 node)
{
	return __atomic_load_n(&r->bound[PipeannReservoirOf(r, node)],
						   __ATOMIC_RELAXED);
}

/* A distance >= 0 in 16 bits, in the order of distances. */
static inline uint16
PipeannReservoirDistance(int32 d)
{
	float		f = (float) d;
	uint32		bits;

	memcpy(&bits, &f, sizeof(bits));
	return (uint16) (bits >> 15);
}

/*
 * The hash of a candidate by direction (a sketch's hash) and distance: each
 * direction has other hashes at twice, four and eight times the distance. In
 * few dimensions there are few directions, and without far candidates a search
 * would only step from one neighbour to the next.
 */
static inline uint16
PipeannFarHash(uint16 sketch_hash, uint16 distance)
{
	uint16		hash = sketch_hash |
		(distance >> 9 & 3) << PIPEANN_HASH_BITS;

	return Min(hash, PIPEANN_NO_HASH - 1);
}

/*
 * The first partition of all vectors, in an order of nodes that keeps near ones
 * together. Members of cluster c are ids[starts[c]] .. ids[starts[c + 1] - 1].
 */
struct PipeannClusters
{
	uint32		n;				/* 0: too few vectors to be cut */
	uint32	   *starts;			/* [n + 1] */
	uint32	   *ids;			/* a node is in several clusters */
	PipeannFixedScale scale;
};

/* A candidate that is offered. */
typedef struct PipeannOffer
{
	uint32		id;
	uint16		distance;
	uint16		hash;
} PipeannOffer;

/* Work space of one member for leaves, by the number of places of a reservoir. */
typedef struct PipeannLeafSpace PipeannLeafSpace;

extern void PipeannReservoirsInit(PipeannTeam *team, PipeannReservoirs *r,
								  uint32 n, int places, bool work);
extern void PipeannReservoirsEmpty(PipeannTeam *team, PipeannReservoirs *r);
extern void PipeannReservoirOffer(PipeannReservoirs *r, uint32 node,
								  const PipeannOffer *offers, int n);
extern int	PipeannReservoirOffers(const PipeannReservoirs *r, uint32 node,
								   PipeannOffer *offers);

/* clusters.c */
extern void PipeannCutClusters(PipeannTeam *team, const PipeannFixed *f,
							   const PipeannClusters *c, uint32 first,
							   uint32 end, uint64 seed,
							   PipeannReservoirs *r);

/* leaf.c */
extern PipeannLeafSpace *PipeannLeafSpaceNew(int dim, int nearest, int places);
extern void PipeannLeafSpaceFree(PipeannLeafSpace *space);
extern void PipeannLeaf(PipeannLeafSpace *space, const PipeannFixed *f,
						const uint32 *ids, int n, int first, PipeannReservoirs *r);

static inline void
PipeannReservoirsFree(PipeannTeam *team, PipeannReservoirs *r)
{
	PipeannTeamFree(team, r->data);
	PipeannTeamFree(team, r->bound);
	PipeannTeamFree(team, r->locks);
}

/* ---------- the measure of graph.h, with its kernel and constants looked up once ---------- */

typedef struct PipeannMeasure
{
	PipeannPairFn pair;			/* the distance, or inner product */
	const char *data;
	Size		stride;
	int			dim;
	int			bytes;			/* of one vector, to prefetch */
	const float *aux;			/* NULL: pair is the measure */
	bool		sum;			/* the aux product is added (IP) */
	float		base;			/* 2 or 2 M^2 */
} PipeannMeasure;

static inline const char *
PipeannMeasureAt(const PipeannMeasure *m, uint32 i)
{
	return m->data + (Size) i * m->stride;
}

static inline void
PipeannMeasurePrefetch(const PipeannMeasure *m, uint32 i)
{
	const char *at = PipeannMeasureAt(m, i);

	for (int offset = 0; offset < m->bytes; offset += PIPEANN_CACHE_LINE)
		__builtin_prefetch(at + offset);
	/* an unaligned vector may take one more cache line */
	__builtin_prefetch(at + m->bytes - 1);
}

/*
 * Turn the kernel's result into the measure. Rounding may make a distance
 * negative; but callers order distances by their bits, so they must be >= 0.
 */
static inline float
PipeannMeasureFinish(const PipeannMeasure *m, float raw, uint32 a, uint32 b)
{
	float		aux;

	if (m->aux == NULL)
		return raw;
	aux = m->aux[a] * m->aux[b];
	raw = m->base - 2.0f * (m->sum ? raw + aux : raw * aux);
	return Max(raw, 0.0f);
}

static inline float
PipeannMeasurePair(const PipeannMeasure *m, uint32 a, uint32 b)
{
	float		raw = m->pair(PipeannMeasureAt(m, a), PipeannMeasureAt(m, b),
							  m->dim);

	return PipeannMeasureFinish(m, raw, a, b);
}

/* Prepare the measure of these vectors, which must outlive it. */
static inline void
PipeannMeasureInit(PipeannMeasure *m, const PipeannVectors *v)
{
	m->pair = PipeannPairKernel(v->metric, v->storage);
	m->data = v->data;
	m->stride = v->stride;
	m->dim = v->dim;
	m->bytes = (int) PipeannVectorBytes(v->storage, v->dim);
	m->aux = v->aux;
	m->sum = v->metric == PIPEANN_IP;
	m->base = m->sum ? 2.0f * v->max_norm * v->max_norm : 2.0f;
}

/*
 * Bytes to prefetch: enough to hide memory latency, but few enough for the
 * first vectors to stay in the first-level cache until their turn.
 */
#define PIPEANN_PREFETCH_BYTES 4096

/*
 * Sets out[n] to the distances of node a from the nodes ids[n], and prefetches
 * their vectors.
 */
static inline void
PipeannMeasureMany(const PipeannMeasure *m, uint32 a, const uint32 *ids, int n,
				   float *out)
{
	const char *from = PipeannMeasureAt(m, a);
	int			ahead = Min(n, Max(2, PIPEANN_PREFETCH_BYTES / m->bytes));

	for (int i = 0; i < ahead; i++)
		PipeannMeasurePrefetch(m, ids[i]);
	for (int i = 0; i < n; i++)
	{
		if (i + ahead < n)
			PipeannMeasurePrefetch(m, ids[i + ahead]);
		out[i] = m->pair(from, PipeannMeasureAt(m, ids[i]), m->dim);
	}
	if (m->aux != NULL)
		for (int i = 0; i < n; i++)
			out[i] = PipeannMeasureFinish(m, out[i], a, ids[i]);
}

#endif							/* PIPEANN_GRAPH_INTERNAL_H */
