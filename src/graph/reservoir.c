/*
 * reservoir.c
 *		HashPrune's reservoirs.
 *
 * Empty places look like candidates farther than all others, so that there is
 * no count to keep.
 */
#include "base/base.h"

#include "distance/distance.h"
#include "graph/reservoir.h"

/* Places that one mask of bits has. */
#define MASK 64

/* Of empty places: greater than any distance. */
#define NO_DISTANCE PG_UINT16_MAX

/* Nodes made empty at once by one member. */
#define RUN 4096

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
 * Empty reservoirs, in memory rather than in a file if work is set; and making
 * them empty again. All members call.
 */
void
PipeannReservoirsInit(PipeannTeam *team, PipeannReservoirs *r, uint32 n,
					  int places, bool work)
{
	r->n = n;
	r->places = places;
	r->shared = team->members > 1;
	r->slot = NULL;
	r->first = 0;
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
	uint64		from;
	uint64		to;

	PipeannTeamBegin(team, r->n, RUN);
	while (PipeannTeamNext(team, &from, &to))
	{
		memset(r->data + from * size, 0xFF, (to - from) * size);
		memset(r->bound + from, 0xFF, (to - from) * sizeof(uint16));
	}
	PipeannTeamEnd(team);
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

/* Put an offer in; *farthest is kept. */
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

/* Bring the reservoir of a node near the processor. */
void
PipeannReservoirPrefetch(const PipeannReservoirs *r, uint32 node)
{
	Places		p = PlacesOf(r, node);
	const char *end = (const char *) (p.distances + r->places);

	for (const char *at = (const char *) p.ids; at < end;
		 at += PIPEANN_CACHE_LINE)
		__builtin_prefetch(at, 1);
}
