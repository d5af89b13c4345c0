/*
 * search_limits_test.c
 *		Searches where little is right: small sources, few codes, damaged pages.
 */
#include "search_tools.h"

#include <math.h>

#include "distance/distance.h"

/* Pages that a round may ask for whatever the limit, and those of entry points. */
#define MOST_IN_ROUND 10

/* Results that are compared. */
#define NEAREST 400

static Index *l2_index;

/*
 * Without codes every page is read, no more at a time than the source takes.
 */
static void
ReadsEverythingWithoutCodes(void)
{
	for (int max_in_flight = 1; max_in_flight <= 64; max_in_flight *= 4)
	{
		PipeannSearchParams params = {.by_page = true};
		MemorySource *memory = OpenSource(l2_index, 20, max_in_flight);
		PipeannSearch *search;
		const PipeannResult *result;
		float		query[MAX_DIM];
		float		last = -INFINITY;
		int			n = 0;

		memory->source.max_in_flight = max_in_flight;
		MakeQuery(l2_index, max_in_flight, query);
		search = BeginSearch(&l2_index->layout, NULL, &memory->source,
							 query, &params);
		PipeannSearchExact(search, l2_index->pages);
		CHECK(memory->nframes == 0);
		CHECK(memory->counters.in_flight_peak <= (uint64) max_in_flight);
		CHECK(memory->counters.page_hits + memory->counters.page_reads ==
			  l2_index->pages);
		while ((result = PipeannSearchPop(search)) != NULL)
		{
			CHECK(result->dist >= last);
			last = result->dist;
			n++;
		}
		CHECK(n == IndexNodes(l2_index));
		EndSearch(search, memory);
	}
}

/*
 * A source that takes a single read at a time is enough.
 */
static void
SmallSourcesAreEnough(void)
{
	for (int i = 0; i < 4 * PIPEANN_SEARCH_MODES; i++)
	{
		PipeannSearchParams params = {.by_page = true};
		MemorySource *memory = OpenSource(l2_index, 10, i);
		PipeannSearch *search;
		float		query[MAX_DIM];

		memory->source.max_in_flight = 1 << (i / PIPEANN_SEARCH_MODES);
		params.policy = PipeannPolicies[i % PIPEANN_SEARCH_MODES];
		params.ef = 30;
		search = BeginQuery(l2_index, &l2_index->codes, memory, i,
							query, &params);
		CHECK(PipeannSearchRun(search));
		CHECK(PipeannSearchRun(search));
		CHECK(memory->counters.in_flight_peak <= 1ULL << (i / PIPEANN_SEARCH_MODES));
		EndSearch(search, memory);
	}
}

/*
 * Where there is nothing to enter by, everything is found by its code.
 */
static void
EntersNowhere(void)
{
	uint8	   *seen = PipeannAlloc(l2_index->ids);

	for (int i = 0; i < PIPEANN_SEARCH_MODES; i++)
	{
		PipeannSearchParams params = {.by_page = true};
		MemorySource *memory = OpenSource(l2_index, 0, i);
		PipeannCodes codes = l2_index->codes;
		PipeannSearch *search;
		float		query[MAX_DIM];

		codes.entry_count = 0;
		params.policy = PipeannPolicies[i];
		params.ef = 10;
		search = BeginQuery(l2_index, &codes, memory, i, query, &params);
		CHECK(TakeAll(l2_index, search, seen) == IndexNodes(l2_index));
		EndSearch(search, memory);
	}
	free(seen);
}

/*
 * Overwrite some slots: wrong degrees, ids, counts, kinds, or all bytes.
 */
static void
Damage(Index *index, uint64 *random)
{
	for (uint32 id = 0; id < index->ids; id++)
	{
		PipeannSlot *slot = IndexSlot(index, id);

		switch (UnitRandom(random) % 12)
		{
			case 0:
				slot->degree = (uint16) UnitRandom(random);
				break;
			case 1:
				for (int i = 0; i < index->layout.max_degree; i++)
					slot->neighbors[i] = (uint32) UnitRandom(random);
				slot->degree = index->layout.max_degree;
				break;
			case 2:
				slot->ntids = (uint16) UnitRandom(random);
				break;
			case 3:
				slot->flags = UnitRandom(random) % 4;
				break;
			case 4:
				slot->neighbors[0] = id;
				slot->neighbors[1] = id;
				slot->degree = 2;
				break;
			case 5:
				for (uint32 i = 0; i < index->layout.slot_size; i++)
					((uint8 *) slot)[i] = (uint8) UnitRandom(random);
				slot->flags &= ~PIPEANN_SLOT_OUT_OF_LINE;
				break;
			default:
				break;
		}
	}
}

static void
DamageEntries(PipeannCodes *codes, uint64 *random)
{
	uint32	   *ids = (uint32 *) codes->entry_ids;
	uint16	   *degrees = (uint16 *) codes->entry_nneighbors;
	uint32	   *neighbors = (uint32 *) codes->entry_neighbors;

	for (int i = 0; i < ENTRIES / 4; i++)
	{
		ids[1 + UnitRandom(random) % (ENTRIES - 1)] =
			(uint32) UnitRandom(random);
		degrees[UnitRandom(random) % ENTRIES] = (uint16) UnitRandom(random);
		neighbors[UnitRandom(random) % (ENTRIES * codes->entry_degree)] =
			(uint32) UnitRandom(random);
	}
}

/* The page of the entry point that is nearest by its whole code. */
static uint32
PageOfNearestEntry(const Index *index, const float *query)
{
	const PipeannCodes *codes = &index->codes;
	float	   *table = PipeannAlloc((Size) codes->pq.nsubvectors *
									 PIPEANN_CENTROIDS * sizeof(float));
	float		least = INFINITY;
	uint32		page = 0;

	PipeannPqTable(&codes->pq, index->layout.metric, query, table);
	for (uint32 i = 0; i < codes->entry_count; i++)
	{
		const uint8 *code = PipeannCodeAt(codes, codes->entry_ids[i]);
		float		dist = 0;

		for (int j = 0; j < codes->pq.nsubvectors; j++)
			dist += table[j * PIPEANN_CENTROIDS + code[j]];
		if (dist >= least)
			continue;
		least = dist;
		page = PipeannIdPage(&index->layout, codes->entry_ids[i]);
	}
	free(table);
	return page;
}

/*
 * The first page asked for is that of the nearest entry point, whatever the mode
 * and the list's length, also when the search before it was another's.
 */
static void
BeginsAtTheNearestEntry(void)
{
	Index	   *index = MakeIndex(2500, 64, PIPEANN_L2, PIPEANN_FLOAT4);
	int			right = 0;

	for (int i = 0; i < 25; i++)
		for (int mode = 0; mode < PIPEANN_SEARCH_MODES; mode++)
		{
			PipeannSearchParams params = {.by_page = true};
			MemorySource *memory = OpenSource(index, 0, i);
			PipeannSearch *search;
			float		query[MAX_DIM];

			params.policy = PipeannPolicies[mode];
			params.ef = i % 5 == 0 ? 300 : 10;
			search = BeginQuery(index, &index->codes, memory, i,
								query, &params);
			CHECK(PipeannSearchRun(search));
			right += memory->frames[0]->frame.page ==
				PageOfNearestEntry(index, query);
			EndSearch(search, memory);
		}
	CHECK(right >= 25 * PIPEANN_SEARCH_MODES * 95 / 100);
}

static void
SurvivesDamage(void)
{
	Index	   *index = MakeIndex(1500, 8, PIPEANN_L2, PIPEANN_FLOAT4);
	uint8	   *seen = PipeannAlloc(index->ids);
	uint64		random = 9;

	for (int round = 0; round < 20; round++)
	{
		Damage(index, &random);
		if (round >= 10)
			DamageEntries(&index->codes, &random);
		for (int i = 0; i < PIPEANN_SEARCH_MODES; i++)
		{
			PipeannSearchParams params = {.by_page = true};
			MemorySource *memory = OpenSource(index, 30, round);
			PipeannSearch *search;
			float		query[MAX_DIM];

			params.policy = PipeannPolicies[i];
			params.ef = 50;
			params.max_pages = round % 2 == 0 ? MAX_FRAMES : 20;
			MakeQuery(index, round, query);
			search = BeginSearch(&index->layout, &index->codes,
								 &memory->source, query, &params);
			(void) TakeAll(index, search, seen);
			EndSearch(search, memory);
		}
	}
	free(seen);
}

/*
 * Codes that cover fewer nodes than there are: the others are not reached.
 */
static void
StaysWithinItsCodes(void)
{
	PipeannCodes codes = l2_index->codes;
	uint8	   *seen = PipeannAlloc(l2_index->ids);

	codes.ncodes = l2_index->ids / 2;
	for (int i = 0; i < PIPEANN_SEARCH_MODES; i++)
	{
		PipeannSearchParams params = {.by_page = true};
		MemorySource *memory = OpenSource(l2_index, 30, i);
		PipeannSearch *search;
		float		query[MAX_DIM];

		params.policy = PipeannPolicies[i];
		params.ef = 50;
		search = BeginQuery(l2_index, &codes, memory, i, query, &params);
		CHECK(TakeAll(l2_index, search, seen) > IndexNodes(l2_index) / 3);
		for (uint32 page = codes.ncodes / l2_index->layout.slots_per_page + 1;
			 page < l2_index->pages; page++)
			CHECK(memory->requests[page] == 0);
		EndSearch(search, memory);
	}
	free(seen);
}

/* What first runs did, over all queries. */
typedef struct FirstRuns
{
	int			most_frames;	/* at once */
	int			found;			/* of the NEAREST */
} FirstRuns;

static FirstRuns
RunFirst(const PipeannCodes *codes, const PipeannSearchParams *params,
		 int resident)
{
	FirstRuns	sum = {0};

	for (int i = 0; i < QUERIES / 4; i++)
	{
		MemorySource *memory = OpenSource(l2_index, resident, i);
		const PipeannResult *result;
		PipeannSearch *search;
		float		query[MAX_DIM];
		double		radius;

		MakeQuery(l2_index, i, query);
		radius = RadiusOf(l2_index, query, NEAREST);
		search = BeginSearch(&l2_index->layout, codes, &memory->source, query,
							 params);
		CHECK(PipeannSearchRun(search));
		sum.most_frames = Max(sum.most_frames, memory->most_frames);
		while ((result = PipeannSearchPop(search)) != NULL)
			sum.found += KeyOf(l2_index, query, NodeOf(search, result)) <=
				radius + 1e-9;
		EndSearch(search, memory);
	}
	return sum;
}

/*
 * A first run keeps no more pages than it may, but for those of a round, and finds
 * as much as one that keeps all (some modes read less when they may keep little, and
 * meet fewer of the farthest).
 */
static void
CheckLimit(const PipeannCodes *codes, PipeannSearchParams *params, int resident,
		   uint32 limit)
{
	FirstRuns	all;
	FirstRuns	some;

	params->max_pages = MAX_FRAMES;
	all = RunFirst(codes, params, resident);
	params->max_pages = limit;
	some = RunFirst(codes, params, resident);
	CHECK(all.most_frames > 120);
	CHECK(some.most_frames <= (int) limit + MOST_IN_ROUND);
	if (!CHECK(some.found >= all.found * 98 / 100))
		NOTE("%s, %d %% resident, %u pages at most: %d found instead of %d",
			 params->policy->name, resident, limit, some.found, all.found);
}

static void
KeepsPagesWithinItsLimit(void)
{
	static const uint32 limits[] = {0, 8, 100};

	for (int i = 0; i < PIPEANN_SEARCH_MODES; i++)
		for (int j = 0; j < 6; j++)
			for (int resident = 0; resident <= 100; resident += 50)
			{
				PipeannSearchParams params = {0};

				params.policy = PipeannPolicies[i];
				params.by_page = j >= 3;
				params.ef = 400;
				CheckLimit(&l2_index->codes, &params, resident, limits[j % 3]);
			}
}

/*
 * Where codes tell nothing whole pages are scored in the end, also those that were
 * given back by then, and also if they have to be read.
 */
static void
ScoresWholePagesGivenBack(void)
{
	PipeannCodes codes = l2_index->codes;
	uint8	   *nothing = PipeannAllocZero(((Size) 1 << codes.chunk_shift) *
										   codes.pq.nsubvectors);
	uint32		nchunks = (codes.ncodes >> codes.chunk_shift) + 1;
	uint8	  **chunks = PipeannAlloc(nchunks * sizeof(uint8 *));

	for (uint32 i = 0; i < nchunks; i++)
		chunks[i] = nothing;
	codes.chunks = chunks;
	for (int i = 0; i < PIPEANN_SEARCH_MODES; i++)
	{
		PipeannSearchParams params = {0};

		params.policy = PipeannPolicies[i];
		params.ef = 400;
		CheckLimit(&codes, &params, 100, 20);
	}
	free(chunks);
	free(nothing);
}

int
main(void)
{
	PipeannKernelsInit();
	l2_index = MakeIndex(6000, 16, PIPEANN_L2, PIPEANN_FLOAT4);
	UNIT_RUN(ReadsEverythingWithoutCodes);
	UNIT_RUN(SmallSourcesAreEnough);
	UNIT_RUN(EntersNowhere);
	UNIT_RUN(BeginsAtTheNearestEntry);
	UNIT_RUN(SurvivesDamage);
	UNIT_RUN(StaysWithinItsCodes);
	UNIT_RUN(KeepsPagesWithinItsLimit);
	UNIT_RUN(ScoresWholePagesGivenBack);
	return UnitDone();
}
