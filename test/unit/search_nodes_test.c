/*
 * search_nodes_test.c
 *		Nodes that are not as others: dead, with rows elsewhere, out of line.
 */
#include "search_tools.h"

#include <math.h>

#include "distance/distance.h"

static Index *l2_index;

/*
 * Nodes without rows are passed through, not returned.
 */
static void
PassesThroughDeadNodes(void)
{
	Index	   *index = MakeIndex(2000, 8, PIPEANN_L2, PIPEANN_FLOAT4);
	uint8	   *seen = PipeannAlloc(index->ids);
	int			alive = 0;

	for (int i = 0; i < IndexNodes(index); i++)
	{
		PipeannSlot *slot = IndexSlotAtPlace(index, i);

		if (i % 10 == 0)
			alive++;
		else
			slot->ntids = 0;
	}
	for (int i = 0; i < PIPEANN_SEARCH_MODES; i++)
	{
		PipeannSearchParams params = {.by_page = true};
		MemorySource *memory = OpenSource(index, 30, i);
		PipeannSearch *search;
		float		query[MAX_DIM];

		params.policy = PipeannPolicies[i];
		params.ef = 20;
		search = BeginQuery(index, &index->codes, memory, i, query, &params);
		CHECK(TakeAll(index, search, seen) == alive);
		EndSearch(search, memory);
	}
	free(seen);
}

/* One node in seven matches. */
static bool
MatchesSeventh(uint32 id, const PipeannSlot *slot, void *arg)
{
	(void) slot;
	(void) arg;
	return id % 7 == 3;
}

/*
 * Nodes that do not match lead to others, and are no results, whether pages are
 * scored or nodes, read or not. What is believed counts those that match.
 */
static void
ReturnsWhatMatches(void)
{
	Index	   *index = MakeIndex(2000, 8, PIPEANN_L2, PIPEANN_FLOAT4);
	uint8	   *seen = PipeannAlloc(index->ids);
	int			matching = 0;

	for (int i = 0; i < IndexNodes(index); i++)
		matching += MatchesSeventh(IndexIdAt(index, i), NULL, NULL);
	for (int i = 0; i < 3 * PIPEANN_SEARCH_MODES; i++)
	{
		PipeannSearchParams params = {.by_page = i % 2 == 0};
		MemorySource *memory = OpenSource(index, i % 3 * 50, i);
		PipeannSearch *search;
		const PipeannResult *result;
		float		query[MAX_DIM];

		params.policy = PipeannPolicies[i % PIPEANN_SEARCH_MODES];
		params.ef = 40;
		params.may_end_early = i % 2 == 0;
		params.matches = MatchesSeventh;
		search = BeginQuery(index, &index->codes, memory, i, query, &params);
		CHECK(PipeannSearchRun(search));
		CHECK(PipeannSearchFrontier(search, PIPEANN_ITERATIVE_OFF).results <= memory->counters.nodes_explored / 3);
		result = PipeannSearchPeek(search);
		CHECK(result == NULL || MatchesSeventh(result->id, NULL, NULL));
		CHECK(TakeAll(index, search, seen) == matching);
		for (uint32 id = 0; id < index->ids; id++)
			CHECK(!seen[id] || MatchesSeventh(id, NULL, NULL));
		EndSearch(search, memory);
	}
	free(seen);
}

/*
 * A chain of rows counts as rows.
 */
static void
ReturnsNodesWhoseRowsAreElsewhere(void)
{
	Index	   *index = MakeIndex(500, 8, PIPEANN_L2, PIPEANN_FLOAT4);
	PipeannSearchParams params = {.by_page = true};
	MemorySource *memory = OpenSource(index, 30, 1);
	PipeannSearch *search;
	const PipeannResult *result;
	float		query[MAX_DIM];
	int			n = 0;

	for (int i = 0; i < IndexNodes(index); i++)
	{
		IndexSlotAtPlace(index, i)->ntids = 0;
		if (i % 5 == 0)
			IndexSlotAtPlace(index, i)->ext_tids = i;
	}
	params.policy = PipeannPolicies[PIPEANN_BEST_FIRST];
	params.ef = 500;
	search = BeginQuery(index, &index->codes, memory, 1, query, &params);
	CHECK(PipeannSearchRun(search));
	while ((result = PipeannSearchPop(search)) != NULL)
	{
		CHECK(result->nrows == 0);
		CHECK(result->ext_tids % 5 == 0);
		n++;
	}
	CHECK(n == 100);
	EndSearch(search, memory);
}

static void
AsksForOutOfLineDistances(void)
{
	Index	   *index = MakeIndex(500, 8, PIPEANN_L2, PIPEANN_FLOAT4);
	PipeannSearchParams params = {.by_page = true};
	MemorySource *memory = OpenSource(index, 30, 1);
	float		dist = -5;
	PipeannSearch *search;
	float		query[MAX_DIM];

	for (int i = 0; i < IndexNodes(index); i += 50)
		IndexSlotAtPlace(index, i)->flags |= PIPEANN_SLOT_OUT_OF_LINE;
	params.policy = PipeannPolicies[PIPEANN_PIPE];
	params.ef = 500;
	params.out_of_line_distance = OutOfLineDistance;
	params.arg = &dist;
	search = BeginQuery(index, &index->codes, memory, 1, query, &params);
	CHECK(PipeannSearchRun(search));
	CHECK(OutOfLineCalls == 10);
	for (int i = 0; i < 10; i++)
		CHECK(PipeannSearchPop(search)->dist == -5);
	CHECK(PipeannSearchPop(search)->dist >= 0);
	EndSearch(search, memory);
}

/*
 * A search by node that meets an out-of-line vector scores all nodes of the pages
 * that it has, each once, and of those that it comes by.
 */
static void
GoesByPageAmongOutOfLineVectors(void)
{
	Index	   *index = MakeIndex(2500, 16, PIPEANN_L2, PIPEANN_FLOAT4);

	for (int out_of_line = 0; out_of_line < 2; out_of_line++)
		for (int resident = 50; resident <= 100; resident += 50)
		{
			PipeannSearchParams params = {0};
			MemorySource *memory = OpenSource(index, resident, 1);
			float		dist = 1e6;
			uint8	   *seen = PipeannAllocZero(index->ids);
			uint32		pages = 0;
			uint32		results = 0;
			const PipeannResult *result;
			PipeannSearch *search;
			float		query[MAX_DIM];

			for (int i = 0; i < IndexNodes(index); i += 20)
				IndexSlotAtPlace(index, i)->flags |=
					out_of_line ? PIPEANN_SLOT_OUT_OF_LINE : 0;
			params.policy = PipeannPolicies[PIPEANN_LOOK_AHEAD];
			params.ef = 100;
			params.out_of_line_distance = OutOfLineDistance;
			params.arg = &dist;
			search = BeginQuery(index, &index->codes, memory, 1,
								query, &params);
			CHECK(PipeannSearchRun(search));
			for (uint32 i = 0; i < index->pages; i++)
				pages += memory->held[i];
			while ((result = PipeannSearchPop(search)) != NULL)
			{
				CHECK(!seen[result->id]);
				seen[result->id] = true;
				results++;
			}
			CHECK(memory->counters.exact_distances == results);
			if (out_of_line)
				CHECK(results >= (pages - 1) * index->layout.fill);
			else if (resident == 100)
				CHECK(results < pages * index->layout.fill * 2 / 3);
			free(seen);
			EndSearch(search, memory);
		}
}

/*
 * So does one whose codes tell nothing, when its list is explored.
 */
static void
GoesByPageWhereCodesAreInDoubt(void)
{
	for (int doubtful = 0; doubtful < 2; doubtful++)
	{
		PipeannSearchParams params = {0};
		PipeannCodes codes = l2_index->codes;
		MemorySource *memory = OpenSource(l2_index, 100, 1);
		uint8	   *nothing = PipeannAllocZero(((Size) 1 << codes.chunk_shift) *
											   codes.pq.nsubvectors);
		uint32		nchunks = (codes.ncodes >> codes.chunk_shift) + 1;
		uint8	  **chunks = PipeannAlloc(nchunks * sizeof(uint8 *));
		uint32		pages = 0;
		PipeannSearch *search;
		float		query[MAX_DIM];

		for (uint32 i = 0; i < nchunks; i++)
			chunks[i] = doubtful ? nothing : codes.chunks[i];
		codes.chunks = chunks;
		params.policy = PipeannPolicies[PIPEANN_LOOK_AHEAD];
		params.ef = 50;
		search = BeginQuery(l2_index, &codes, memory, 1, query, &params);
		CHECK(PipeannSearchRun(search));
		for (uint32 i = 0; i < l2_index->pages; i++)
			pages += memory->held[i];
		if (doubtful)
			CHECK(memory->counters.exact_distances >=
				  (pages - 1) * l2_index->layout.fill);
		else
			CHECK(memory->counters.exact_distances <
				  pages * l2_index->layout.fill * 2 / 3);
		EndSearch(search, memory);
		free(chunks);
		free(nothing);
	}
}

/*
 * A page that was in memory, was let go, and has to be read when the search goes on
 * is left alone until it has come: the source counts it as a mistake otherwise.
 */
static void
LeavesPagesThatAreBeingRead(void)
{
	for (int i = 0; i < PIPEANN_SEARCH_MODES * 4; i++)
	{
		Index	   *index = MakeIndex(2500, 16, PIPEANN_L2, PIPEANN_FLOAT4);
		PipeannSearchParams params = {0};
		MemorySource *memory = OpenSource(index, 100, i);
		float		dist = 1e6;
		uint64		reads;
		PipeannSearch *search;
		float		query[MAX_DIM];

		params.policy = PipeannPolicies[i % PIPEANN_SEARCH_MODES];
		params.ef = 40;
		params.max_pages = 0;
		params.out_of_line_distance = OutOfLineDistance;
		params.arg = &dist;
		MakeQuery(index, i, query);
		search = BeginSearch(&index->layout, &index->codes, &memory->source,
							 query, &params);
		CHECK(PipeannSearchRun(search));
		memory->resident = 0;
		for (int j = 0; j < IndexNodes(index); j++)
			IndexSlotAtPlace(index, j)->flags |= PIPEANN_SLOT_OUT_OF_LINE;
		reads = memory->counters.page_reads;
		for (int run = 0; run < 3; run++)
			(void) PipeannSearchRun(search);
		CHECK(memory->counters.page_reads > reads);
		EndSearch(search, memory);
	}
}

int
main(void)
{
	PipeannKernelsInit();
	l2_index = MakeIndex(6000, 16, PIPEANN_L2, PIPEANN_FLOAT4);
	UNIT_RUN(PassesThroughDeadNodes);
	UNIT_RUN(ReturnsWhatMatches);
	UNIT_RUN(ReturnsNodesWhoseRowsAreElsewhere);
	UNIT_RUN(AsksForOutOfLineDistances);
	UNIT_RUN(GoesByPageAmongOutOfLineVectors);
	UNIT_RUN(GoesByPageWhereCodesAreInDoubt);
	UNIT_RUN(LeavesPagesThatAreBeingRead);
	return UnitDone();
}
