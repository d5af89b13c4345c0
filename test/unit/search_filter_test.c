/*
 * search_filter_test.c
 *		Attribute codes as searches see them: which nodes pass, and searches that
 *		go through those that match.
 */
#include "search_tools.h"

#include "distance/distance.h"
#include "search/engine.c"
#include "search/list.c"

#define PLANES 3				/* a column of one byte, and one of two */
#define CHUNK_SHIFT 11

/* The attributes of a node: a small number, and one of two bytes. */
typedef struct Attributes
{
	uint8		narrow;
	uint16		wide;
} Attributes;

static Index *l2_index;
static PipeannCodes coded;		/* l2_index->codes with attribute codes */

static Attributes
AttributesOf(uint32 id)
{
	uint64		random = id * 7919 + 1;
	Attributes	a;

	a.narrow = (uint8) (UnitRandom(&random) % 20);
	a.wide = (uint16) (UnitRandom(&random) % 3000 * 21);
	return a;
}

/* The same codes, in blocks with attribute codes behind them. */
static void
AddAttributes(void)
{
	const PipeannCodes *from = &l2_index->codes;
	int			nchunks = (l2_index->ids >> CHUNK_SHIFT) + 1;
	uint8	  **chunks = PipeannAlloc(nchunks * sizeof(uint8 *));

	coded = *from;
	coded.attr_bytes = PLANES;
	coded.chunk_shift = CHUNK_SHIFT;
	coded.chunks = chunks;
	for (int i = 0; i < nchunks; i++)
		chunks[i] = PipeannAllocZero((Size) (from->pq.nsubvectors + PLANES) <<
									 CHUNK_SHIFT);
	for (uint32 id = 0; id < l2_index->ids; id++)
	{
		Attributes	a = AttributesOf(id);
		uint8		bytes[PLANES] = {a.narrow, a.wide >> 8, a.wide & 0xFF};

		memcpy((uint8 *) PipeannCodeAt(&coded, id), PipeannCodeAt(from, id),
			   from->pq.nsubvectors);
		for (int i = 0; i < PLANES; i++)
			*(uint8 *) PipeannAttributeAt(&coded, id, i) = bytes[i];
	}
	for (uint32 id = 0; id < l2_index->ids; id++)
		CHECK(memcmp(PipeannCodeAt(&coded, id), PipeannCodeAt(from, id),
					 from->pq.nsubvectors) == 0);
}

/* What is asked for: narrow numbers below one, wide ones between two. */
typedef struct Wish
{
	int			below;			/* 0: any */
	int			from;			/* to < from: any */
	int			to;
} Wish;

/* A range that is below zero means numbers here and there. */
static bool
InRange(int wide, const Wish *wish)
{
	if (wish->to < wish->from)
		return true;
	return wish->from < 0 ? wide % 5 == 0 && wide % 1024 < 512 :
		wide >= wish->from && wide <= wish->to;
}

static bool
Fulfils(uint32 id, const Wish *wish)
{
	Attributes	a = AttributesOf(id);

	return (wish->below == 0 || a.narrow < wish->below) &&
		InRange(a.wide, wish);
}

static void
AddMember(uint8 *set, uint32 byte)
{
	set[byte / 8] |= 1 << byte % 8;
}

static PipeannCodeFilter
FilterOf(const Wish *wish)
{
	static uint8 second[256 * 32];
	PipeannCodeFilter filter = {.precision = 1};

	if (wish->below > 0)
	{
		for (int i = 0; i < wish->below; i++)
			AddMember(filter.columns[filter.n].first, i);
		filter.columns[filter.n].width = 1;
		filter.n++;
	}
	if (wish->to >= wish->from)
	{
		PipeannCodeColumn *column = &filter.columns[filter.n++];

		memset(second, 0, sizeof(second));
		for (int i = 0; i < 65536; i++)
		{
			if (!InRange(i, wish))
				continue;
			AddMember(second + (i >> 8) * 32, i & 0xFF);
		}
		column->plane = 1;
		column->width = 2;
		column->second = second;
		PipeannCodeColumnFill(column);
	}
	return filter;
}

static const Wish wishes[] = {
	{5, 1, 0}, {0, 10000, 30000}, {0, -2, -1}, {3, 500, 60000}, {1, 20000, 24000},
	{0, 21, 21}, {0, 60000, 60020}, {19, 1, 0}, {1, 40000, 40100}
};

static void
TellsWhichPass(void)
{
	for (size_t w = 0; w < lengthof(wishes); w++)
	{
		PipeannCodeFilter filter = FilterOf(&wishes[w]);
		uint32		passing = 0;
		double		share;

		for (uint32 first = 0; first < coded.ncodes; first += PIPEANN_CODE_BLOCK)
		{
			uint64		mask[PIPEANN_BLOCK_WORDS];

			PipeannPassing(&coded, &filter, first, PIPEANN_CODE_BLOCK, mask);
			for (uint32 i = 0; i < PIPEANN_CODE_BLOCK; i++)
			{
				bool		want = first + i < coded.ncodes &&
					Fulfils(first + i, &wishes[w]);

				passing += want;
				CHECK(((mask[i / 64] >> i % 64) & 1) == want);
				if (first + i < coded.ncodes)
					CHECK(PipeannCodePasses(&coded, &filter, first + i) == want);
			}
		}
		share = PipeannSharePassing(&coded, &filter);
		CHECK(share >= 0.8 * passing / coded.ncodes - 0.01 &&
			  share <= 1.2 * passing / coded.ncodes + 0.01);
	}
}

/* While codes are written over all nodes pass, and no others. */
static void
LetsPassWhatIsWrittenOver(void)
{
	uint32		stores[2] = {1, 0};
	PipeannCodeFilter filter = FilterOf(&wishes[0]);
	PipeannCodes torn = coded;

	torn.stores = stores;
	for (stores[1] = 0; stores[1] < 2; stores[1]++)
		for (uint32 first = 0; first < torn.ncodes; first += PIPEANN_CODE_BLOCK)
		{
			uint64		mask[PIPEANN_BLOCK_WORDS];

			PipeannPassing(&torn, &filter, first, PIPEANN_CODE_BLOCK, mask);
			for (uint32 i = 0; i < PIPEANN_CODE_BLOCK; i++)
			{
				bool		want = first + i < torn.ncodes &&
					(stores[1] == 0 || Fulfils(first + i, &wishes[0]));

				CHECK(((mask[i / 64] >> i % 64) & 1) == want);
				if (first + i < torn.ncodes)
					CHECK(PipeannCodePasses(&torn, &filter, first + i) == want);
			}
		}
}

/* A range of numbers of two bytes, and those whose first byte alone is 0. */
static void
TellsWhichAreInRange(void)
{
	static const Wish ranges[] = {{0, 10000, 30000}, {0, 256, 256}, {0, 500, 60000}, {0, 65535, 65535}};

	for (size_t w = 0; w < lengthof(ranges); w++)
	{
		PipeannCodeFilter filter = {.n = 1,.precision = 1,.columns[0] = {.plane = 1,.width = 2}};

		filter.columns[0].from = (uint16) ranges[w].from;
		filter.columns[0].to = (uint16) ranges[w].to;
		for (uint32 first = 0; first < coded.ncodes; first += PIPEANN_CODE_BLOCK)
		{
			uint64		mask[PIPEANN_BLOCK_WORDS];

			PipeannPassing(&coded, &filter, first, PIPEANN_CODE_BLOCK, mask);
			for (uint32 id = first; id < Min(first + PIPEANN_CODE_BLOCK, coded.ncodes); id++)
			{
				int			wide = AttributesOf(id).wide;
				bool		want = InRange(wide, &ranges[w]) || (wide > 0 && wide < 256);

				CHECK(((mask[id % PIPEANN_CODE_BLOCK / 64] >> id % 64) & 1) == want);
				CHECK(PipeannCodePasses(&coded, &filter, id) == want);
			}
		}
	}
}

static void
AddFilter(const Wish *wish, PipeannCodeFilter *filter)
{
	PipeannCodeFilter one = FilterOf(wish);

	for (int i = 0; i < one.n; i++)
	{
		filter->columns[filter->n] = one.columns[i];
		filter->columns[filter->n++].also = i < one.n - 1;
	}
}

/*
 * One wish out of two, the first of which asks for two columns, and a third one in
 * any case. (Only one of them may ask for many numbers, as FilterOf() has one set.)
 */
static void
TellsAlternatives(void)
{
	static const Wish three[][3] = {
		{{5, 10000, 30000}, {2, 1, 0}, {18, 1, 0}},
		{{3, -2, -1}, {2, 1, 0}, {20, 1, 0}},
		{{2, 1, 0}, {4, 500, 60000}, {19, 1, 0}}
	};

	for (size_t w = 0; w < lengthof(three); w++)
	{
		PipeannCodeFilter filter = {.precision = 1};
		uint32		passing = 0;

		AddFilter(&three[w][0], &filter);
		filter.columns[filter.n - 1].otherwise = true;
		AddFilter(&three[w][1], &filter);
		AddFilter(&three[w][2], &filter);
		for (uint32 first = 0; first < coded.ncodes; first += PIPEANN_CODE_BLOCK)
		{
			uint64		mask[PIPEANN_BLOCK_WORDS];

			PipeannPassing(&coded, &filter, first, PIPEANN_CODE_BLOCK, mask);
			for (uint32 i = 0; i < PIPEANN_CODE_BLOCK &&
				 first + i < coded.ncodes; i++)
			{
				uint32		id = first + i;
				bool		want = (Fulfils(id, &three[w][0]) ||
									Fulfils(id, &three[w][1])) &&
					Fulfils(id, &three[w][2]);

				passing += want;
				CHECK(((mask[i / 64] >> i % 64) & 1) == want);
				CHECK(PipeannCodePasses(&coded, &filter, id) == want);
			}
		}
		CHECK(passing > 0 && passing < coded.ncodes);
	}
}

static bool
Matches(uint32 id, const PipeannSlot *slot, void *arg)
{
	(void) slot;
	return Fulfils(id, arg);
}

static uint32
CountMatching(const Wish *wish)
{
	uint32		n = 0;

	for (int i = 0; i < IndexNodes(l2_index); i++)
		n += Fulfils(IndexIdAt(l2_index, i), wish);
	return n;
}

static PipeannSearchParams
ParamsOf(int mode, Wish *wish, const PipeannCodeFilter *filter)
{
	PipeannSearchParams params = {0};

	params.policy = PipeannPolicies[mode];
	params.ef = 60;
	params.may_end_early = true;
	params.code_filter = filter;
	params.matches = Matches;
	params.arg = wish;
	return params;
}

/* However few they are, all that match come in the end, each once. */
static void
ReturnsAllThatMatch(void)
{
	uint8	   *seen = PipeannAlloc(l2_index->ids);

	for (size_t w = 0; w < lengthof(wishes); w++)
		for (int i = 0; i < 2 * PIPEANN_SEARCH_MODES; i++)
		{
			Wish		wish = wishes[w];
			PipeannCodeFilter filter = FilterOf(&wish);
			PipeannSearchParams params = ParamsOf(i % PIPEANN_SEARCH_MODES,
												  &wish, &filter);
			MemorySource *memory = OpenSource(l2_index, i % 3 * 50, i);
			PipeannSearch *search;
			float		query[MAX_DIM];

			params.max_pages = i % 2 == 0 ? 0 : 40;
			search = BeginQuery(l2_index, &coded, memory, i, query, &params);
			CHECK(TakeAll(l2_index, search, seen) == (int) CountMatching(&wish));
			EndSearch(search, memory);
		}
	free(seen);
}

/* Key of the k-th nearest that matches. */
static double
MatchingRadius(const float *query, const Wish *wish, int k)
{
	double		nearest[K];
	int			n = 0;

	for (int i = 0; i < IndexNodes(l2_index); i++)
	{
		double		key;
		int			at;

		if (!Fulfils(IndexIdAt(l2_index, i), wish))
			continue;
		key = KeyOf(l2_index, query, l2_index->order[i]);
		if (n == k && key >= nearest[k - 1])
			continue;
		at = n < k ? n++ : k - 1;
		for (; at > 0 && nearest[at - 1] > key; at--)
			nearest[at] = nearest[at - 1];
		nearest[at] = key;
	}
	return n == 0 ? 0 : nearest[n - 1];
}

/* The first run finds the nearest that match, whichever strategy it chose. */
static void
FindsTheNearestThatMatch(void)
{
	for (size_t w = 0; w < lengthof(wishes); w++)
	{
		int			found = 0;
		int			wanted = 0;

		for (int i = 0; i < QUERIES; i++)
		{
			Wish		wish = wishes[w];
			PipeannCodeFilter filter = FilterOf(&wish);
			PipeannSearchParams params = ParamsOf(i % PIPEANN_SEARCH_MODES,
												  &wish, &filter);
			MemorySource *memory = OpenSource(l2_index, i % 3 * 50, i);
			int			k = Min(K, (int) CountMatching(&wish));
			PipeannSearch *search;
			const PipeannResult *result;
			float		query[MAX_DIM];
			double		radius;

			search = BeginQuery(l2_index, &coded, memory, i, query, &params);
			CHECK(PipeannSearchRun(search));
			radius = MatchingRadius(query, &wish, k);
			for (int j = 0; j < k && (result = PipeannSearchPop(search)) != NULL; j++)
				found += result->dist <= radius * 1.0001;
			wanted += k;
			EndSearch(search, memory);
		}
		NOTE("wish %zu: %d of %d", w, found, wanted);
		CHECK(found >= 0.93 * wanted);
	}
}

/* Where few match the graph is not touched, and few pages are read. */
static void
ReadsLittleWhereFewMatch(void)
{
	Wish		wish = wishes[4];
	PipeannCodeFilter filter = FilterOf(&wish);
	PipeannSearchParams params = ParamsOf(PIPEANN_DEFAULT_MODE, &wish, &filter);
	MemorySource *memory = OpenSource(l2_index, 0, 1);
	PipeannSearch *search;
	float		query[MAX_DIM];
	uint32		passing = 0;

	search = BeginQuery(l2_index, &coded, memory, 1, query, &params);
	CHECK(PipeannSearchRun(search));
	CHECK(search->code_scan.begun);
	for (uint32 id = 0; id < l2_index->ids; id++)
		passing += Fulfils(id, &wish);
	CHECK(memory->counters.page_reads <= passing);
	CHECK(passing < (uint32) params.ef);
	CHECK(PipeannSearchPeek(search) != NULL);
	EndSearch(search, memory);
}

/* No more match than the list would have: not all are read, and the answer is exact. */
static void
IsSureWhereFewMatch(void)
{
	Wish		wish = {0, 30000, 30320};
	uint32		passing = CountMatching(&wish);
	uint64		explored = 0;

	CHECK(passing > 2 * K && passing < 60);
	for (int i = 0; i < QUERIES; i++)
	{
		PipeannCodeFilter filter = FilterOf(&wish);
		PipeannSearchParams params = ParamsOf(PIPEANN_DEFAULT_MODE, &wish, &filter);
		MemorySource *memory = OpenSource(l2_index, i % 3 * 50, i);
		PipeannSearch *search;
		float		query[MAX_DIM];
		double		radius;

		search = BeginQuery(l2_index, &coded, memory, i, query, &params);
		CHECK(PipeannSearchRun(search));
		radius = MatchingRadius(query, &wish, K);
		for (int j = 0; j < K; j++)
			CHECK(PipeannSearchPop(search)->dist <= radius * 1.0001);
		explored += memory->counters.nodes_explored;
		EndSearch(search, memory);
	}
	NOTE("%.1f explored of %u", (double) explored / QUERIES, passing);
	CHECK(explored < (uint64) passing * QUERIES * 3 / 4);
}

/* Give a node the pool's item of this distance. */
static void
AddCandidate(PipeannPool *pool, uint32 id, float dist, bool matches)
{
	PipeannCandidate item = {.dist = dist,.id = id,.page = PIPEANN_NO_PAGE,
	.ref = PIPEANN_NO_REF,.matches = matches};

	PipeannPoolMerge(pool, &item, 1);
}

/*
 * A walk is in doubt while it knows too few that match, or more are nearer than
 * the last of these than it has explored, whether they are in the list or not.
 */
static void
DoubtsWhatItDidNotExplore(void)
{
	static PipeannSearch search;
	PipeannCodeFilter filter = {.precision = 1};
	PipeannPool *pool = &search.pool;
	uint32		id = 0;

	PoolReset(pool, 30);
	search.near_share = 0.5;
	CHECK(!WalkIsInDoubt(&search));
	search.params.code_filter = &filter;
	CHECK(!WalkIsInDoubt(&search));
	PoolSetHead(pool, 30, 10);
	search.explored = 1000;
	for (; id < PIPEANN_EARLY_RESULTS; id++)
	{
		CHECK(WalkIsInDoubt(&search));
		AddCandidate(pool, id, 10 + id, true);
	}
	CHECK(!WalkIsInDoubt(&search));

	search.explored = 20;
	for (; id < 20; id++)
		AddCandidate(pool, id, 5, false);
	CHECK(!WalkIsInDoubt(&search));
	PipeannPoolDiscard(pool, id, 50);
	CHECK(!WalkIsInDoubt(&search));
	PipeannPoolDiscard(pool, id + 1, 6);
	CHECK(WalkIsInDoubt(&search));
	search.explored = 21;
	CHECK(!WalkIsInDoubt(&search));

	filter.precision = 0.1;
	CHECK(WalkIsInDoubt(&search));
}

/*
 * Few of all pass: where all near ones do the list is no longer than without a
 * filter; where none does, the search scans the codes, however many pass elsewhere.
 */
static void
GoesByWhatIsNear(void)
{
	Wish		wish = {10, 1, 0};
	PipeannCodeFilter filter = FilterOf(&wish);
	PipeannSearchParams params = ParamsOf(PIPEANN_DEFAULT_MODE, &wish, &filter);
	PipeannCodes many = coded;
	MemorySource *memory = OpenSource(l2_index, 0, 1);
	PipeannSearch *search;
	float		query[MAX_DIM];

	search = BeginQuery(l2_index, &coded, memory, 1, query, &params);
	many.ncodes = 200 * coded.ncodes;	/* only counted */
	search->codes = &many;
	search->code_scan.chosen = false;
	ChooseFilterStrategyNear(search, 30, 30);
	CHECK(!search->code_scan.chosen && search->most_matching == 0);
	CHECK(search->stretch == 1);
	ChooseFilterStrategyNear(search, 15, 30);
	CHECK(!search->code_scan.chosen && search->stretch > 1);
	search->codes = &coded;
	ChooseFilterStrategyNear(search, 0, 30);
	CHECK(search->code_scan.chosen);
	search->code_scan.chosen = false;
	EndSearch(search, memory);
}

int
main(void)
{
	PipeannKernelsInit();
	l2_index = MakeIndex(9000, 16, PIPEANN_L2, PIPEANN_FLOAT4);
	AddAttributes();
	UNIT_RUN(TellsWhichPass);
	UNIT_RUN(LetsPassWhatIsWrittenOver);
	UNIT_RUN(TellsWhichAreInRange);
	UNIT_RUN(TellsAlternatives);
	UNIT_RUN(ReturnsAllThatMatch);
	UNIT_RUN(FindsTheNearestThatMatch);
	UNIT_RUN(ReadsLittleWhereFewMatch);
	UNIT_RUN(IsSureWhereFewMatch);
	UNIT_RUN(DoubtsWhatItDidNotExplore);
	UNIT_RUN(GoesByWhatIsNear);
	return UnitDone();
}
