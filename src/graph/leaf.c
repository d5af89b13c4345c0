/*
 * leaf.c
 *		HashPrune's reservoirs, and leaves: small sets of vectors, in which
 *		each is offered its nearest.
 */
#include "base/base.h"

#include "graph/internal.h"

/* ---------- reservoirs ---------- */

/*
 * Empty places look like candidates farther than all others, so that there is
 * no count to keep.
 */

/* Places that one bit mask covers. */
#define MASK 64

/* The distance of empty places: greater than any other. */
#define NO_DISTANCE PG_UINT16_MAX

/* Reservoirs that one member empties at a time. */
#define SLICE 4096

typedef struct Places
{
	uint32	   *ids;
	uint16	   *hashes;
	uint16	   *distances;
} Places;

static inline Places
PlacesOf(const PipeannReservoirs *r, uint32 node)
{
	Places		p;

	p.ids = (uint32 *) (r->data +
						PipeannReservoirOf(r, node) *
						PipeannPlacesSize(r->places));
	p.hashes = (uint16 *) (p.ids + r->places);
	p.distances = p.hashes + r->places;
	return p;
}

/*
 * Make empty reservoirs, in memory rather than in a file if work is set; or
 * empty them again. All members call.
 */
void
PipeannReservoirsInit(PipeannTeam *team, PipeannReservoirs *r, uint32 n,
					  int places, bool work)
{
	memset(r, 0, sizeof(*r));
	r->n = n;
	r->places = places;
	r->shared = team->members > 1;
	r->data = PipeannTeamAllocAs(team, mul_size(n, PipeannPlacesSize(places)),
								 work);
	r->bound = PipeannTeamAllocAs(team, mul_size(n, sizeof(uint16)), work);
	r->locks = PipeannTeamAllocAs(team, n, work);
	PipeannReservoirsEmpty(team, r);
}

void
PipeannReservoirsEmpty(PipeannTeam *team, PipeannReservoirs *r)
{
	Size		size = PipeannPlacesSize(r->places);

	PipeannTeamSlices(team, from, to, r->n, SLICE)
	{
		memset(r->data + from * size, 0xFF, (to - from) * size);
		memset(r->bound + from, 0xFF, (to - from) * sizeof(uint16));
	}
}

/* The place of a hash, or -1. */
static inline int
FindHash(const Places *p, int places, uint16 hash)
{
	for (int i = 0; i < places; i += MASK)
	{
		uint64		found = PipeannKernel->equal16(p->hashes + i,
												   Min(places - i, MASK),
												   hash);

		if (found != 0)
			return i + __builtin_ctzll(found);
	}
	return -1;
}

/* The farthest candidate, or an empty place. */
static inline int
FindFarthest(const Places *p, int places)
{
	uint16		most = PipeannKernel->most16(p->distances, places);
	int			farthest = -1;

	for (int i = 0; i < places; i += MASK)
	{
		uint64		found = PipeannKernel->equal16(p->distances + i,
												   Min(places - i, MASK),
												   most);

		for (; found != 0; found &= found - 1)
		{
			int			place = i + __builtin_ctzll(found);

			if (farthest < 0 || p->ids[place] > p->ids[farthest])
				farthest = place;
			if (most == NO_DISTANCE)
				return farthest;
		}
	}
	return farthest;
}

static inline bool
IsNearer(const Places *p, int place, uint16 distance, uint32 id)
{
	return distance < p->distances[place] ||
		(distance == p->distances[place] && id < p->ids[place]);
}

/* Put an offer in; *farthest is kept up to date. */
static inline void
Put(const Places *p, int places, const PipeannOffer *offer, int *farthest)
{
	int			place;

	if (!IsNearer(p, *farthest, offer->distance, offer->id))
		return;
	place = FindHash(p, places, offer->hash);
	if (place < 0)
		place = *farthest;
	else if (!IsNearer(p, place, offer->distance, offer->id))
		return;
	p->ids[place] = offer->id;
	p->hashes[place] = offer->hash;
	p->distances[place] = offer->distance;
	if (place == *farthest)
		*farthest = FindFarthest(p, places);
}

/* Offer candidates to the reservoir of a node. */
void
PipeannReservoirOffer(PipeannReservoirs *r, uint32 node,
					  const PipeannOffer *offers, int n)
{
	Places		p = PlacesOf(r, node);
	uint32		slot = PipeannReservoirOf(r, node);
	int			farthest;

	if (r->shared)
		PipeannTeamLock(&r->locks[slot]);
	farthest = FindFarthest(&p, r->places);
	for (int i = 0; i < n; i++)
		Put(&p, r->places, &offers[i], &farthest);
	__atomic_store_n(&r->bound[slot], p.distances[farthest],
					 __ATOMIC_RELAXED);
	if (r->shared)
		PipeannTeamUnlock(&r->locks[slot]);
}

/*
 * Sets offers[places] to a node's candidates, to be offered to another
 * reservoir; returns their number.
 */
int
PipeannReservoirOffers(const PipeannReservoirs *r, uint32 node,
					   PipeannOffer *offers)
{
	Places		p = PlacesOf(r, node);
	int			n = 0;

	for (int i = 0; i < r->places; i++)
	{
		if (p.ids[i] == PIPEANN_INVALID_ID)
			continue;
		offers[n].id = p.ids[i];
		offers[n].distance = p.distances[i];
		offers[n++].hash = p.hashes[i];
	}
	return n;
}

/* ---------- leaves ---------- */

/*
 * All distances are computed in tiles. A tile serves its rows and its columns:
 * the distance of a and b is one of a's and one of b's. So only tiles on and
 * above the diagonal are computed.
 *
 * A small group of nodes that are nearer to one another than to all others
 * would be cut off: its members would be offered only each other. So each
 * member of the leaf is also offered one from the other half of the leaf, its
 * mate. Where there are enough nearer candidates mates find no place.
 *
 * In a large group of nodes that are hardly apart all have the same few
 * nearest, those that come first. So the members of such a group form a ring,
 * a different one in each leaf, and each is offered to those next to it.
 */

#define ROWS PIPEANN_TILE_ROWS
#define COLUMNS PIPEANN_TILE_COLUMNS
#define PANELS (PIPEANN_LEAF / COLUMNS)

/* Reservoirs are prefetched this many turns ahead. */
#define AHEAD 4

/* Members of the leaf, not ids. */
typedef struct LeafOffer
{
	uint16		to;
	uint16		from;
	uint16		distance;
} LeafOffer;

struct PipeannLeafSpace
{
	int			dim;
	int			nearest;		/* to find of each member */
	int			nhashes;		/* hash values for very near candidates */
	int			n;
	int16	   *panels;			/* of all members */
	const int16 *rows[PIPEANN_LEAF + ROWS];
	int32		half_norm[PIPEANN_LEAF + COLUMNS];
	int16		sketch[PIPEANN_LEAF][PIPEANN_SKETCH];
	int32		limit[PIPEANN_LEAF + COLUMNS];	/* farthest of a member's
												 * nearest */
	int32	   *distance;		/* [PIPEANN_LEAF][nearest], ascending */
	uint16	   *member;			/* [PIPEANN_LEAF][nearest], members at these distances */
	uint16		bound[PIPEANN_LEAF];	/* of a member's reservoir */

	uint16		mate[PIPEANN_LEAF]; /* of a member of the first half, or 0 */
	int32		mate_distance[PIPEANN_LEAF];

	uint16		group[PIPEANN_LEAF];	/* its first member */
	int			last[PIPEANN_LEAF]; /* member put into a group's ring; or -1 */

	LeafOffer  *offers;			/* [2 * PIPEANN_LEAF * (nearest + 2)] */
	PipeannOffer *sorted;		/* offers[], sorted by member */
	int			noffers;
	uint16		count[PIPEANN_LEAF + 1];	/* offers of member a begin at count[a] */
};

PipeannLeafSpace *
PipeannLeafSpaceNew(int dim, int nearest, int places)
{
	PipeannLeafSpace *s = palloc(sizeof(PipeannLeafSpace));

	s->dim = dim;
	s->nearest = nearest;
	/* up to half of a reservoir, so that there is room for others */
	for (s->nhashes = 1; s->nhashes * 4 <= places; s->nhashes *= 2)
		;
	s->panels = PipeannArray(int16, mul_size(PIPEANN_LEAF, dim));
	s->distance = PipeannArray(int32, mul_size(PIPEANN_LEAF, nearest));
	s->member = PipeannArray(uint16, mul_size(PIPEANN_LEAF, nearest));
	s->offers = PipeannArray(LeafOffer, 2 * PIPEANN_LEAF * (nearest + 2));
	s->sorted = PipeannArray(PipeannOffer, 2 * PIPEANN_LEAF * (nearest + 2));
	return s;
}

void
PipeannLeafSpaceFree(PipeannLeafSpace *s)
{
	pfree(s->panels);
	pfree(s->distance);
	pfree(s->member);
	pfree(s->offers);
	pfree(s->sorted);
	pfree(s);
}

/* Put member b into the list of a. */
static inline void
InsertNearest(PipeannLeafSpace *s, int a, int b, int32 d)
{
	int32	   *distance = s->distance + a * s->nearest;

	PipeannInsertNearest(distance, s->member + a * s->nearest, s->nearest, d, b);
	s->limit[a] = distance[s->nearest - 1];
}

/*
 * Take those of row a's distances from the columns j .. j + COLUMNS - 1 that
 * were near when the tile was made, as far as they are behind a. Most are too
 * far for either's list.
 */
static inline void
TakeRow(PipeannLeafSpace *s, int a, int j, uint32 near, const int32 *d)
{
	if (j <= a)
		near &= ~((2u << (a - j)) - 1);
	if (j + COLUMNS > s->n)
		near &= (1u << (s->n - j)) - 1;
	while (near != 0)
	{
		int			c = __builtin_ctz(near);

		near &= near - 1;
		if (d[c] < s->limit[a])
			InsertNearest(s, a, j + c, d[c]);
		if (d[c] < s->limit[j + c])
			InsertNearest(s, j + c, a, d[c]);
	}
}

static void
FindNearest(PipeannLeafSpace *s, const PipeannFixed *f, int first)
{
	int32		tile[ROWS * COLUMNS];

	memset(s->mate, 0, s->n * sizeof(uint16));
	for (int i = 0; i < (first > 0 ? first : s->n); i += ROWS)
	{
		int			mates = (i + s->n / 2) / COLUMNS * COLUMNS;

		CHECK_FOR_INTERRUPTS();
		for (int j = Max(i, first) / COLUMNS * COLUMNS; j < s->n; j += COLUMNS)
		{
			uint16		near[ROWS];

			/* the tile of rows from i on and columns from j on */
			PipeannFixedTile(f, s->rows + i, s->panels + (Size) j * s->dim, tile);
			PipeannKernel->tile_near(s->half_norm + i, s->half_norm + j,
									 s->limit + i, s->limit + j, tile, near);
			for (int r = 0; r < ROWS && i + r < s->n; r++)
				if (near[r] != 0)
					TakeRow(s, i + r, j, near[r], tile + r * COLUMNS);
			if (j == mates && j > i)
				for (int r = 0; r < ROWS && j + r < s->n; r++)
				{
					s->mate[i + r] = j + r;
					s->mate_distance[i + r] = tile[r * COLUMNS + r];
				}
		}
	}
}

/* Whether a is among the nearest of b. */
static inline bool
IsNearestOf(const PipeannLeafSpace *s, int a, int b)
{
	for (int k = 0; k < s->nearest; k++)
		if (s->distance[b * s->nearest + k] != INT32_MAX &&
			s->member[b * s->nearest + k] == a)
			return true;
	return false;
}

/* Note an offer of b to a, if a may want it. */
static inline void
NoteOffer(PipeannLeafSpace *s, int a, int b, uint16 distance)
{
	LeafOffer  *offer = &s->offers[s->noffers];

	if (distance > s->bound[a])
		return;
	offer->to = a;
	offer->from = b;
	offer->distance = distance;
	s->count[a + 1]++;
	s->noffers++;
}

/*
 * Sets group[] for those whose nearest are all very near. False if there are
 * none.
 */
static bool
FindGroups(PipeannLeafSpace *s)
{
	bool		found = false;

	for (int a = 0; a < s->n; a++)
	{
		s->group[a] = a;
		if (s->limit[a] >= PIPEANN_VERY_NEAR)
			continue;
		found = true;
		for (int k = 0; k < s->nearest; k++)
		{
			int			b = s->member[a * s->nearest + k];

			if (b < a)
				s->group[a] = Min(s->group[a], s->group[b]);
		}
	}
	return found;
}

/*
 * Make a ring of each group, without the link that would close it. A step that
 * is a prime and larger than a leaf visits all members.
 */
static void
NoteRings(PipeannLeafSpace *s, const PipeannFixed *f, const uint32 *ids)
{
	static const int steps[] = {521, 523, 541, 547, 557, 563, 569, 571};
	int			step = steps[(ids[0] + s->n) % lengthof(steps)];

	if (!FindGroups(s))
		return;
	memset(s->last, -1, s->n * sizeof(int));
	for (int i = 0, a = 0; i < s->n; i++, a = (a + step) % s->n)
	{
		int		   *last = &s->last[s->group[a]];

		if (*last >= 0)
		{
			uint16		distance =
				PipeannReservoirDistance(PipeannFixedPair(f, ids[a],
														  ids[*last]));

			NoteOffer(s, a, *last, distance);
			NoteOffer(s, *last, a, distance);
		}
		*last = a;
	}
}

/* All pairs of which one is among the other's nearest, or its mate. */
static void
NoteOffers(PipeannLeafSpace *s, const PipeannFixed *f, const uint32 *ids)
{
	s->noffers = 0;
	memset(s->count, 0, (s->n + 1) * sizeof(uint16));
	NoteRings(s, f, ids);
	for (int a = 0; a < s->n; a++)
	{
		if (s->mate[a] != 0)
		{
			uint16		distance = PipeannReservoirDistance(s->mate_distance[a]);

			NoteOffer(s, a, s->mate[a], distance);
			NoteOffer(s, s->mate[a], a, distance);
		}
		for (int k = 0; k < s->nearest; k++)
		{
			int32		d = s->distance[a * s->nearest + k];
			int			b = s->member[a * s->nearest + k];
			uint16		distance = PipeannReservoirDistance(d);

			if (d == INT32_MAX || (b < a && IsNearestOf(s, a, b)))
				continue;
			NoteOffer(s, a, b, distance);
			NoteOffer(s, b, a, distance);
		}
	}
}

/*
 * Offer each of ids[n] its nearest among them, and it to these. n is at most
 * PIPEANN_LEAF. If first is given, the first ones are compared with the others only.
 */
void
PipeannLeaf(PipeannLeafSpace *s, const PipeannFixed *f, const uint32 *ids,
			int n, int first, PipeannReservoirs *r)
{
	uint16		next[PIPEANN_LEAF];

	if (n < 2)
		return;
	s->n = n;
	for (int i = 0; i < n; i++)
	{
		s->rows[i] = PipeannFixedAt(f, ids[i]);
		s->half_norm[i] = PipeannFixedNorm(f, ids[i]);
		memcpy(s->sketch[i], f->sketch + (Size) ids[i] * PIPEANN_SKETCH,
			   sizeof(s->sketch[i]));
		s->limit[i] = INT32_MAX;
	}
	for (int i = n; i < n + ROWS; i++)
		s->rows[i] = s->rows[n - 1];
	/* for tiles that reach beyond the last column */
	memset(s->half_norm + n, 0, COLUMNS * sizeof(int32));
	memset(s->limit + n, 0, COLUMNS * sizeof(int32));
	for (int i = 0; i < n * s->nearest; i++)
		s->distance[i] = INT32_MAX;
	for (int i = 0; i < n; i += COLUMNS)
		PipeannFixedPanel(f, s->rows + i, Min(n - i, COLUMNS),
						  s->panels + (Size) i * s->dim);
	for (int a = 0; a < n; a++)
		s->bound[a] = PipeannReservoirBound(r, ids[a]);
	FindNearest(s, f, first);
	NoteOffers(s, f, ids);
	/* sort the offers by the members that they are made to */
	for (int a = 0; a < n; a++)
	{
		s->count[a + 1] += s->count[a];
		next[a] = s->count[a];
	}
	for (int i = 0; i < s->noffers; i++)
	{
		const LeafOffer *offer = &s->offers[i];
		PipeannOffer *sorted = &s->sorted[next[offer->to]++];

		sorted->id = ids[offer->from];
		sorted->distance = offer->distance;
		sorted->hash = offer->distance < PipeannReservoirDistance(PIPEANN_VERY_NEAR) ?
			PipeannNearHash(ids[offer->to], ids[offer->from], s->nhashes) :
			PipeannFarHash(PipeannSketchHash(s->sketch[offer->to], s->sketch[offer->from]),
						   offer->distance);
	}
	for (int a = 0; a < n; a++)
	{
		if (a + AHEAD < n && s->count[a + AHEAD + 1] > s->count[a + AHEAD])
		{
			Places		p = PlacesOf(r, ids[a + AHEAD]);
			const char *end = (const char *) (p.distances + r->places);

			/* prefetch the reservoir of a later node, of which few ids will be written */
			for (const char *at = (const char *) p.hashes; at < end;
				 at += PIPEANN_CACHE_LINE)
				__builtin_prefetch(at, 1);
		}
		if (s->count[a + 1] > s->count[a])
			PipeannReservoirOffer(r, ids[a], s->sorted + s->count[a],
								  s->count[a + 1] - s->count[a]);
	}
}
