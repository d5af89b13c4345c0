/*
 * search_recall_test.c
 *		Searches find the nearest, in each mode and without each idea.
 */
#include "search_tools.h"

#include <math.h>

#include "distance/distance.h"

static Index *l2_index;

/*
 * No more reads in flight than allowed. (A first beam is asked for while the
 * entry points' pages are still on their way.)
 */
static void
CheckWidth(const MemorySource *memory, const PipeannSearchParams *params)
{
	uint64		allowed = params->width;

	if (params->policy != PipeannPolicies[PIPEANN_PIPE])
		allowed *= 2;
	if (params->width > 0)
		CHECK(memory->counters.in_flight_peak <= allowed);
}

/*
 * Search once; count how many of the K nearest are among the first K.
 */
static int
CountFound(const Index *index, int number, const PipeannSearchParams *params,
		   int resident)
{
	MemorySource *memory = OpenSource(index, resident, number);
	PipeannSearch *search;
	const PipeannResult *result;
	float		query[MAX_DIM];
	double		radius;
	float		last = -INFINITY;
	int			found = 0;

	MakeQuery(index, number, query);
	radius = RadiusOf(index, query, K);
	search = BeginSearch(&index->layout, &index->codes, &memory->source,
						 query, params);
	CHECK(PipeannSearchRun(search));
	CHECK(memory->counters.nodes_explored >= (uint64) params->ef);
	CHECK(memory->counters.exact_distances >= (uint64) params->ef);
	CHECK(memory->counters.code_distances <= index->ids + ENTRIES);
	CheckWidth(memory, params);
	for (int i = 0; i < K; i++)
	{
		double		key;

		result = PipeannSearchPop(search);
		if (!CHECK(result != NULL))
			break;
		key = KeyOf(index, query, NodeOf(search, result));
		CHECK(result->dist >= last);
		CHECK_CLOSE(result->dist, key, 1e-4 * fabs(key) + 1e-4);
		last = result->dist;
		if (key <= radius + 1e-9)
			found++;
	}
	EndSearch(search, memory);
	return found;
}

static double
RecallWith(const Index *index, const PipeannPolicy *policy, bool by_page,
		   int ef, int width, int resident)
{
	PipeannSearchParams params = {.policy = policy, .by_page = by_page};
	int			found = 0;

	params.ef = ef;
	params.width = width;
	params.max_pages = MAX_FRAMES;
	for (int i = 0; i < QUERIES; i++)
		found += CountFound(index, i, &params, resident);
	return (double) found / (QUERIES * K);
}

static double
Recall(const Index *index, const PipeannPolicy *policy, int ef, int width,
	   int resident)
{
	return RecallWith(index, policy, true, ef, width, resident);
}

static void
FindsTheNearest(void)
{
	static const int widths[] = {0, 1, 2, 64};

	for (int i = 0; i < PIPEANN_SEARCH_MODES; i++)
		for (int j = 0; j < 4; j++)
			for (int resident = 0; resident <= 100; resident += 50)
			{
				double		recall = Recall(l2_index, PipeannPolicies[i],
											100, widths[j], resident);

				if (!CHECK(recall >= 0.995))
					NOTE("%s, width %d, %d %% resident: recall %.3f",
						 PipeannPolicies[i]->name, widths[j], resident, recall);
			}
}

/*
 * The same where only the nodes explored are taken from pages in memory: in
 * memory that is all that is scored, a list a sixth longer than else, and results
 * are as good; from the first read on nothing is otherwise.
 */
static void
FindsTheNearestByNode(void)
{
	for (int i = 0; i < PIPEANN_SEARCH_MODES; i++)
		for (int ef = 32; ef <= 100; ef += 34)
			for (int resident = 0; resident <= 100; resident += 50)
			{
				double		by_page = Recall(l2_index, PipeannPolicies[i],
											 ef, 0, resident);
				double		recall = RecallWith(l2_index, PipeannPolicies[i],
												false, ef, 0, resident);

				if (!CHECK(recall >= by_page - 0.01))
					NOTE("%s, ef %d, %d %% resident: recall %.3f, by page %.3f",
						 PipeannPolicies[i]->name, ef, resident, recall, by_page);
			}
}

/* Where memory has entries without edges, few of them or all. */
static void
FindsTheNearestFromEntriesAlone(void)
{
	uint32		count = l2_index->codes.entry_count;
	const uint16 *degrees = l2_index->codes.entry_nneighbors;

	l2_index->codes.entry_nneighbors = NULL;
	for (uint32 few = 10; few <= count; few += count - 10)
		for (int i = 0; i < PIPEANN_SEARCH_MODES; i++)
		{
			double		recall;

			l2_index->codes.entry_count = few;
			recall = Recall(l2_index, PipeannPolicies[i], 100, 0, 50);
			if (!CHECK(recall >= 0.99))
				NOTE("%s, %u entries: recall %.3f", PipeannPolicies[i]->name, few, recall);
		}
	l2_index->codes.entry_nneighbors = degrees;
	l2_index->codes.entry_count = count;
}

static void
ScoresWhatItExploresInMemory(void)
{
	for (int resident = 0; resident <= 100; resident += 100)
	{
		PipeannSearchParams params = {0};
		MemorySource *memory = OpenSource(l2_index, resident, 3);
		PipeannCounters *counters = &memory->counters;
		PipeannSearch *search;
		float		query[MAX_DIM];

		params.policy = PipeannPolicies[PIPEANN_LOOK_AHEAD];
		params.ef = 60;
		search = BeginQuery(l2_index, &l2_index->codes, memory, 3,
							query, &params);
		CHECK(PipeannSearchRun(search));
		if (resident == 100)
		{
			CHECK(counters->nodes_explored >= 60 + 60 / 7);
			CHECK(counters->nodes_explored <= 60 + 60 / 6 + 10);
			/* but for the pages that came whole */
			CHECK(counters->exact_distances <
				  counters->nodes_explored +
				  counters->page_hits * (l2_index->layout.slots_per_page - 1) / 3);
		}
		else
			CHECK(counters->exact_distances >
				  counters->page_reads * (l2_index->layout.slots_per_page - 2));
		EndSearch(search, memory);
	}
}

/*
 * Ids of the K nearest found in one run, as many as there are; returns the nodes
 * explored.
 */
static uint64
OneRun(const PipeannPolicy *policy, int ef, int min_list, int resident,
	   uint32 *ids)
{
	PipeannSearchParams params = {.policy = policy};
	MemorySource *memory = OpenSource(l2_index, resident, 3);
	PipeannSearch *search;
	float		query[MAX_DIM];
	const PipeannResult *result;
	uint64		explored;

	memset(ids, 0xFF, K * sizeof(uint32));
	params.ef = ef;
	params.min_list = min_list;
	search = BeginQuery(l2_index, &l2_index->codes, memory, 3, query, &params);
	CHECK(PipeannSearchRun(search));
	explored = memory->counters.nodes_explored;
	CHECK(PipeannSearchFrontier(search, PIPEANN_ITERATIVE_OFF).results <= explored);
	for (int i = 0; i < K && (result = PipeannSearchPop(search)) != NULL; i++)
		ids[i] = result->id;
	EndSearch(search, memory);
	return explored;
}

/* With a list that is shorter than the least one, what is done with that one. */
static void
ExploresTheLeastList(void)
{
	for (int i = 0; i < PIPEANN_SEARCH_MODES; i++)
		for (int resident = 0; resident <= 100; resident += 100)
		{
			uint32		found[K];
			uint32		wanted[K];
			const PipeannPolicy *policy = PipeannPolicies[i];
			uint64		explored = OneRun(policy, 5, 20, resident, found);

			CHECK(OneRun(policy, 20, 0, resident, wanted) == explored);
			CHECK(memcmp(found, wanted, sizeof(found)) == 0);
			CHECK(explored >= 20);
			CHECK(OneRun(policy, 5, 0, resident, found) < 20);
			CHECK(OneRun(policy, 20, 5, resident, found) == explored);
		}
}

/*
 * Pages that were read count as in memory: with these first, look_ahead reads
 * no more than best_first does.
 */
static void
ReadsLess(void)
{
	uint64		best_first = ReadsOf(l2_index, PipeannPolicies[PIPEANN_BEST_FIRST], true, 30);
	uint64		look_ahead = ReadsOf(l2_index, PipeannPolicies[PIPEANN_LOOK_AHEAD], true, 30);

	if (!CHECK(look_ahead <= best_first))
		NOTE("look_ahead %d reads, best_first %d", (int) look_ahead,
			 (int) best_first);
}

static void
FindsMoreWithALongerPool(void)
{
	for (int i = 0; i < PIPEANN_SEARCH_MODES; i++)
	{
		double		at_10 = Recall(l2_index, PipeannPolicies[i], 10, 0, 50);
		double		at_40 = Recall(l2_index, PipeannPolicies[i], 40, 0, 50);
		double		at_300 = Recall(l2_index, PipeannPolicies[i], 300, 0, 50);

		CHECK(at_10 < at_40);
		CHECK(at_40 <= at_300);
		CHECK(at_300 >= 0.99);
	}
}

static void
FindsWithOtherMetricsAndStorage(void)
{
	static const PipeannMetric metrics[] = {PIPEANN_IP, PIPEANN_COSINE,
	PIPEANN_L2, PIPEANN_COSINE, PIPEANN_L1, PIPEANN_L1};
	static const PipeannStorage storage[] = {PIPEANN_FLOAT4, PIPEANN_FLOAT4,
	PIPEANN_UINT8, PIPEANN_UINT8, PIPEANN_FLOAT4, PIPEANN_UINT8};

	for (int i = 0; i < 6; i++)
	{
		Index	   *index = MakeIndex(2500, 16, metrics[i], storage[i]);

		for (int j = 0; j < PIPEANN_SEARCH_MODES; j++)
		{
			double		recall = Recall(index, PipeannPolicies[j], 100, 0, 30);

			if (!CHECK(recall >= 0.95))
				NOTE("metric %d, storage %d, %s: recall %.3f",
					 metrics[i], storage[i], PipeannPolicies[j]->name, recall);
		}
	}
}

int
main(void)
{
	PipeannKernelsInit();
	l2_index = MakeIndex(6000, 16, PIPEANN_L2, PIPEANN_FLOAT4);
	UNIT_RUN(FindsTheNearest);
	UNIT_RUN(FindsTheNearestByNode);
	UNIT_RUN(FindsTheNearestFromEntriesAlone);
	UNIT_RUN(ScoresWhatItExploresInMemory);
	UNIT_RUN(ExploresTheLeastList);
	UNIT_RUN(ReadsLess);
	UNIT_RUN(FindsMoreWithALongerPool);
	UNIT_RUN(FindsWithOtherMetricsAndStorage);
	return UnitDone();
}
