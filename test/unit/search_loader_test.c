/*
 * search_loader_test.c
 *		Codes that are not in memory: searches and filters find the same by what a loader
 *		gets as by all codes in memory.
 */
#include "search_tools.h"

#include "distance/distance.h"

#define PLANES 3				/* a column of one byte, and one of two */
#define CHUNK_SHIFT 20

/*
 * A loader that keeps no more than it has to, each code at an address of its own: what
 * is too old is overwritten. Of blocks it has one of `every`, or none.
 */
typedef struct MemoryLoader
{
	PipeannCodeLoader loader;
	const PipeannCodes *codes;
	uint32		every;			/* 0: none */
	uint32		block;			/* at hand, or INVALID_ID */
	uint32		told;			/* nodes are prefetched up to here */
	uint8	   *kept[PIPEANN_MOST_GATHERED];
	uint64		next;
	uint8		byte;
	uint64		looks;			/* nodes looked up one by one */
	uint64		gathers;
	uint64		last;			/* gather before all codes are made anew; 0: none */
} MemoryLoader;

static Index *index9000;
static PipeannCodes coded;		/* its codes with attribute codes */

static const uint8 *
CodeOf(PipeannCodeLoader *loader, uint32 id)
{
	MemoryLoader *memory = (MemoryLoader *) loader;
	int			size = memory->codes->pq.nsubvectors;
	uint8	  **place = &memory->kept[memory->next++ % PIPEANN_MOST_GATHERED];

	CHECK(id < memory->codes->ncodes);
	if (*place != NULL)
		memset(*place, 0xA5, size);
	free(*place);
	*place = PipeannAlloc(size);
	memset(*place, 0, size);
	if (!loader->stale)
		memcpy(*place, PipeannCodeInMemory(memory->codes, id), size);
	memory->looks++;
	return *place;
}

static const uint8 *
AttributeOf(PipeannCodeLoader *loader, uint32 id, uint32 plane)
{
	MemoryLoader *memory = (MemoryLoader *) loader;
	const uint8 *found = PipeannAttributeAt(memory->codes, id, plane);

	CHECK(id < memory->codes->ncodes && plane < memory->codes->attr_bytes);
	if (id >> PIPEANN_CODE_BLOCK_SHIFT == memory->block)
		return found;
	memory->byte = *found;
	memory->looks++;
	return &memory->byte;
}

static void
Gather(PipeannCodeLoader *loader, const uint32 *ids, int n, const uint8 **codes)
{
	MemoryLoader *memory = (MemoryLoader *) loader;

	CHECK(n <= PIPEANN_MOST_GATHERED);
	loader->stale = memory->last > 0 && memory->gathers >= memory->last;
	for (int i = 0; i < n; i++)
		codes[i] = CodeOf(loader, ids[i]);
	memory->looks -= n;
	memory->gathers++;
}

static bool
HasBlock(PipeannCodeLoader *loader, uint32 first)
{
	MemoryLoader *memory = (MemoryLoader *) loader;
	uint32		block = first >> PIPEANN_CODE_BLOCK_SHIFT;
	bool		has = memory->every > 0 && block % memory->every == 0;

	CHECK(first % PIPEANN_CODE_BLOCK == 0 && first < memory->codes->ncodes);
	memory->block = has ? block : PIPEANN_INVALID_ID;
	return has;
}

static void
Prefetch(PipeannCodeLoader *loader, uint32 first, uint32 n)
{
	MemoryLoader *memory = (MemoryLoader *) loader;

	CHECK(n > 0 && first + n <= memory->codes->ncodes);
	memory->told = first + n;
}

/* The codes as a loader has them: nothing else leads to one. */
static PipeannCodes
WithLoader(MemoryLoader *memory, const PipeannCodes *codes, uint32 every)
{
	PipeannCodes without = *codes;

	memset(memory, 0, sizeof(*memory));
	memory->loader = (PipeannCodeLoader) {CodeOf, AttributeOf, Gather, HasBlock, Prefetch, 0, false};
	memory->codes = codes;
	memory->every = every;
	memory->block = PIPEANN_INVALID_ID;
	without.chunks = NULL;
	without.loader = &memory->loader;
	return without;
}

static void
FreeLoader(MemoryLoader *memory)
{
	for (int i = 0; i < PIPEANN_MOST_GATHERED; i++)
		free(memory->kept[i]);
}

/* A small number, and one of two bytes. */
static uint8
NarrowOf(uint32 id)
{
	return id * 2654435761u % 1009 % 20;
}

static uint32
WideOf(uint32 id)
{
	return id * 40503u % 65536;
}

static void
AddAttributes(void)
{
	const PipeannCodes *from = &index9000->codes;
	uint8	  **chunks = PipeannAlloc(sizeof(uint8 *));

	chunks[0] = PipeannAllocZero((Size) (from->pq.nsubvectors + PLANES) *
								 (index9000->ids + PIPEANN_CODE_BLOCK));
	coded = *from;
	coded.attr_bytes = PLANES;
	coded.chunk_shift = CHUNK_SHIFT;
	coded.chunks = chunks;
	for (uint32 id = 0; id < index9000->ids; id++)
	{
		uint8		bytes[PLANES] = {NarrowOf(id), WideOf(id) >> 8, WideOf(id) & 0xFF};

		memcpy((uint8 *) PipeannCodeAt(&coded, id), PipeannCodeAt(from, id),
			   from->pq.nsubvectors);
		for (int i = 0; i < PLANES; i++)
			*(uint8 *) PipeannAttributeAt(&coded, id, i) = bytes[i];
	}
}

/* Narrow numbers below one, and wide ones in a range. */
typedef struct Wish
{
	int			below;
	int			from;
	int			to;
} Wish;

static const Wish wishes[] = {{20, 0, 65535}, {12, 0, 60000}, {10, 500, 40000}, {2, 0, 65535}, {1, 3000, 4000}, {1, 10, 11}};

static PipeannCodeFilter
FilterOf(const Wish *wish)
{
	PipeannCodeFilter filter = {.n = 2,.precision = 1};

	for (int i = 0; i < wish->below; i++)
		PipeannSetBit(filter.columns[0].first, i);
	filter.columns[0].width = 1;
	filter.columns[1].plane = 1;
	filter.columns[1].width = 2;
	filter.columns[1].from = (uint16) wish->from;
	filter.columns[1].to = (uint16) wish->to;
	return filter;
}

static bool
Matches(uint32 id, const PipeannSlot *slot, void *arg)
{
	PipeannCodeFilter filter = FilterOf(arg);

	(void) slot;
	return PipeannCodePasses(&coded, &filter, id);
}

/* Whichever blocks are in memory. */
static void
LetsTheSamePass(void)
{
	for (uint32 every = 0; every <= 3; every++)
		for (size_t w = 0; w < lengthof(wishes); w++)
		{
			PipeannCodeFilter filter = FilterOf(&wishes[w]);
			MemoryLoader memory;
			PipeannCodes codes = WithLoader(&memory, &coded, every);
			double		share = PipeannSharePassing(&coded, &filter);

			for (uint32 first = 0; first < coded.ncodes; first += PIPEANN_CODE_BLOCK)
			{
				uint64		with[PIPEANN_BLOCK_WORDS];
				uint64		without[PIPEANN_BLOCK_WORDS];
				uint64		looks = memory.looks;

				PipeannPrefetchBlock(&codes, &filter, first);
				CHECK(memory.told == Min(first + PIPEANN_CODE_BLOCK, coded.ncodes));
				PipeannPassing(&codes, &filter, first, PIPEANN_CODE_BLOCK, with);
				PipeannPassing(&coded, &filter, first, PIPEANN_CODE_BLOCK, without);
				CHECK(memcmp(with, without, sizeof(with)) == 0);
				CHECK((memory.looks == looks) == (memory.block == first >> PIPEANN_CODE_BLOCK_SHIFT));
				for (uint32 id = first; id < Min(first + PIPEANN_CODE_BLOCK, coded.ncodes); id++)
					CHECK(PipeannCodePasses(&codes, &filter, id) ==
						  PipeannCodePasses(&coded, &filter, id));
			}
			memory.looks = 0;
			CHECK(fabs(PipeannSharePassing(&codes, &filter) - share) < 0.1);
			CHECK(memory.looks <= 3 * coded.ncodes / 8);
			FreeLoader(&memory);
		}
}

typedef struct Found
{
	int			n;
	uint32		ids[3 * 60];
	float		dists[3 * 60];
	PipeannCounters counters;
} Found;

/* What the first runs of a search find, in order. */
static void
Find(const PipeannCodes *codes, int number, PipeannSearchParams params, Found *found)
{
	MemorySource *memory = OpenSource(index9000, number % 3 * 50, number);
	const PipeannResult *result;
	float		query[MAX_DIM];
	PipeannSearch *search = BeginQuery(index9000, codes, memory, number, query, &params);

	found->n = 0;
	for (int runs = 0; runs < 3 && PipeannSearchRun(search); runs++)
		while (found->n < (runs + 1) * 60 && (result = PipeannSearchPop(search)) != NULL)
		{
			found->ids[found->n] = result->id;
			found->dists[found->n++] = result->dist;
		}
	found->counters = memory->counters;
	EndSearch(search, memory);
}

static void
CheckFindsTheSame(const PipeannCodes *codes, PipeannSearchParams params)
{
	static Found with;
	static Found without;

	for (uint32 every = 0; every <= 2; every++)
		for (int i = 0; i < 4 * PIPEANN_SEARCH_MODES; i++)
		{
			MemoryLoader memory;
			PipeannCodes absent = WithLoader(&memory, codes, every);

			params.policy = PipeannPolicies[i % PIPEANN_SEARCH_MODES];
			Find(codes, i, params, &without);
			Find(&absent, i, params, &with);
			CHECK(with.n == without.n);
			CHECK(memcmp(with.ids, without.ids, with.n * sizeof(uint32)) == 0);
			CHECK(memcmp(with.dists, without.dists, with.n * sizeof(float)) == 0);
			CHECK(memcmp(&with.counters, &without.counters, sizeof(PipeannCounters)) == 0);
			CHECK(memory.gathers > 0 || with.counters.code_distances == 0);
			CHECK(params.code_filter != NULL || memory.looks == 0);
			FreeLoader(&memory);
		}
}

static void
FindsTheSame(void)
{
	PipeannSearchParams params = {.ef = 60};

	CheckFindsTheSame(&index9000->codes, params);
	params.may_end_early = true;
	CheckFindsTheSame(&index9000->codes, params);
}

/* By walks and by code scans. */
static void
FindsTheSameThatMatch(void)
{
	for (size_t w = 0; w < lengthof(wishes); w++)
	{
		Wish		wish = wishes[w];
		PipeannCodeFilter filter = FilterOf(&wish);
		PipeannSearchParams params = {.ef = 60,.may_end_early = true};

		params.code_filter = &filter;
		params.matches = Matches;
		params.arg = &wish;
		CheckFindsTheSame(&coded, params);
	}
}

/* Nodes that are named; many, so that they are compared. */
static void
FindsTheSameOfThoseWanted(void)
{
	uint32		wanted[500];
	PipeannSearchParams params = {.ef = 60,.wanted_nodes = wanted,.nwanted_nodes = 500};

	for (uint32 i = 0; i < lengthof(wanted); i++)
		wanted[i] = IndexIdAt(index9000, i * 17);
	CheckFindsTheSame(&index9000->codes, params);
}

/*
 * Codes are made anew while a code scan goes through them again and again: no node is lost, and
 * none comes later than the search says.
 */
static void
FindsAllWhoseCodesAreMadeAnew(void)
{
	Wish		wish = wishes[3];
	PipeannCodeFilter filter = FilterOf(&wish);
	uint32		matching = 0;

	for (uint32 i = 0; i < 9000; i++)
		matching += Matches(IndexIdAt(index9000, i), NULL, &wish);
	for (uint64 last = 1; last < 200; last += 9)
	{
		MemoryLoader loader;
		PipeannCodes absent = WithLoader(&loader, &coded, 1);
		PipeannSearchParams params = {.ef = 60,.policy = PipeannPolicies[0],.code_filter = &filter,.matches = Matches,.arg = &wish};
		MemorySource *memory = OpenSource(index9000, 0, 1);
		float		query[MAX_DIM];
		PipeannSearch *search = BeginQuery(index9000, &absent, memory, 1, query, &params);
		const PipeannResult *result;
		float		final = -INFINITY;
		uint32		found = 0;

		loader.last = last;
		for (; PipeannSearchRun(search); final = PipeannSearchFrontier(search, PIPEANN_ITERATIVE_STRICT).distance)
			for (; (result = PipeannSearchPop(search)) != NULL; found++)
				CHECK(!(result->dist < final));
		CHECK(found == matching);
		EndSearch(search, memory);
		FreeLoader(&loader);
	}
}

int
main(void)
{
	PipeannKernelsInit();
	index9000 = MakeIndex(9000, 16, PIPEANN_L2, PIPEANN_FLOAT4);
	AddAttributes();
	UNIT_RUN(LetsTheSamePass);
	UNIT_RUN(FindsTheSame);
	UNIT_RUN(FindsTheSameThatMatch);
	UNIT_RUN(FindsTheSameOfThoseWanted);
	UNIT_RUN(FindsAllWhoseCodesAreMadeAnew);
	return UnitDone();
}
