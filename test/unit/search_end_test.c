/*
 * search_end_test.c
 *		How far searches go: early ends, continued runs, and what stays of them.
 */
#include "search_tools.h"

#include <math.h>

#include "distance/distance.h"
#include "search/state.h"

static Index *l2_index;

/*
 * A search that is asked to go on finds every node once; pages that it must
 * give back meanwhile are asked for again, the others are not.
 */
static void
GoesOnToTheEnd(void)
{
	static const uint32 max_pages[] = {MAX_FRAMES, 40, 0};
	uint8	   *seen = PipeannAlloc(l2_index->ids);

	for (int i = 0; i < 6 * PIPEANN_SEARCH_MODES; i++)
	{
		PipeannSearchParams params = {.by_page = true};
		MemorySource *memory = OpenSource(l2_index, 30, i);
		PipeannSearch *search;
		float		query[MAX_DIM];
		uint64		most = 0;

		params.policy = PipeannPolicies[i % PIPEANN_SEARCH_MODES];
		params.ef = 20;
		params.max_pages = max_pages[i / PIPEANN_SEARCH_MODES % 3];
		params.may_end_early = i >= 3 * PIPEANN_SEARCH_MODES;
		MakeQuery(l2_index, i, query);
		search = BeginSearch(&l2_index->layout, &l2_index->codes,
							 &memory->source, query, &params);
		CHECK(TakeAll(l2_index, search, seen) == IndexNodes(l2_index));
		CHECK(PipeannSearchFrontier(search, PIPEANN_ITERATIVE_OFF).results >= (uint64) IndexNodes(l2_index));
		CHECK(memory->counters.nodes_explored <= 2 * (uint64) l2_index->ids);
		CHECK(memory->counters.exact_distances == (uint64) IndexNodes(l2_index));
		for (uint32 page = 0; page < l2_index->pages; page++)
			most = Max(most, memory->requests[page]);
		if (params.max_pages == MAX_FRAMES)
			CHECK(most == 1);
		EndSearch(search, memory);
	}
	free(seen);
}

/* The same index in two halves that no edge or page leads between; entries are in the first. */
static Index
CutInTwo(uint32 *entry_ids)
{
	Index		cut = *l2_index;
	Size		size = mul_size(cut.pages, cut.page_size);
	uint32		half = cut.pages / 2 * cut.layout.slots_per_page;

	cut.data = PipeannAlloc(size);
	memcpy(cut.data, l2_index->data, size);
	for (uint32 id = 0; id < cut.ids; id++)
	{
		PipeannSlot *slot = IndexSlot(&cut, id);
		int			kept = 0;

		if (!PipeannSlotIsNode(slot))
			continue;
		for (int i = 0; i < slot->degree; i++)
			if ((slot->neighbors[i] < half) == (id < half))
				slot->neighbors[kept++] = slot->neighbors[i];
		slot->degree = (uint16) kept;
	}
	for (uint32 i = 0; i < cut.codes.entry_count; i++)
	{
		entry_ids[i] = cut.codes.entry_ids[i];
		if (entry_ids[i] >= half)
			entry_ids[i] = entry_ids[i] % half;
	}
	cut.codes.entry_ids = entry_ids;
	cut.codes.entry_codes = IndexEntryCodes(&cut.codes);
	return cut;
}

/* With a list for all nodes, the first run returns all of them in order. */
static void
FindsTheNearestOfAllGroups(const Index *cut, const PipeannSearchParams *like,
						   int number, int resident)
{
	PipeannSearchParams params = *like;
	MemorySource *memory = OpenSource(cut, resident, number);
	PipeannSearch *search;
	float		query[MAX_DIM];
	float		before = -INFINITY;
	const PipeannResult *result;
	int			n = 0;

	params.ef = IndexNodes(cut);
	params.may_end_early = false;
	MakeQuery(cut, number, query);
	search = BeginSearch(&cut->layout, &cut->codes, &memory->source, query,
						 &params);
	CHECK(PipeannSearchRun(search));
	for (; (result = PipeannSearchPop(search)) != NULL; n++)
	{
		CHECK(result->dist >= before);
		before = result->dist;
	}
	CHECK(n == IndexNodes(cut));
	EndSearch(search, memory);
}

/* Groups that no edge leads to are found when all others are used up. */
static void
GoesOnToOtherGroups(void)
{
	uint32	   *entry_ids = PipeannAlloc(sizeof(uint32) *
										 l2_index->codes.entry_count);
	Index		cut = CutInTwo(entry_ids);
	uint8	   *seen = PipeannAlloc(cut.ids);

	for (int i = 0; i < 4 * PIPEANN_SEARCH_MODES; i++)
	{
		PipeannSearchParams params = {.ef = 20};
		MemorySource *memory = OpenSource(&cut, 30, i);
		PipeannSearch *search;
		float		query[MAX_DIM];

		params.policy = PipeannPolicies[i % PIPEANN_SEARCH_MODES];
		params.by_page = i / PIPEANN_SEARCH_MODES % 2 == 0;
		params.may_end_early = i >= 2 * PIPEANN_SEARCH_MODES;
		MakeQuery(&cut, i, query);
		search = BeginSearch(&cut.layout, &cut.codes, &memory->source, query,
							 &params);
		CHECK(TakeAll(&cut, search, seen) == IndexNodes(&cut));
		EndSearch(search, memory);
		FindsTheNearestOfAllGroups(&cut, &params, i, 30);
		FindsTheNearestOfAllGroups(&cut, &params, i, 100);
	}
	free(seen);
	free(cut.data);
	free((uint8 *) cut.codes.entry_codes);
	free(entry_ids);
}

/*
 * A search that has gone far goes on by the codes of all nodes, and so meets a group that no
 * edge leads to before it has used up the other.
 */
static void
MeetsOtherGroupsOnTheWay(void)
{
	const int	nearest = 500;
	uint32	   *entry_ids = PipeannAlloc(sizeof(uint32) *
										 l2_index->codes.entry_count);
	Index		cut = CutInTwo(entry_ids);

	for (int i = 0; i < 2 * PIPEANN_SEARCH_MODES; i++)
	{
		PipeannSearchParams params = {.ef = 20,.max_pages = MAX_FRAMES};
		MemorySource *memory = OpenSource(&cut, i % 2 == 0 ? 30 : 100, i);
		PipeannSearch *search;
		float		query[MAX_DIM];
		int			found;

		params.policy = PipeannPolicies[i / 2];
		MakeQuery(&cut, i, query);
		search = BeginSearch(&cut.layout, &cut.codes, &memory->source, query,
							 &params);
		while (PipeannSearchFrontier(search, PIPEANN_ITERATIVE_OFF).results < 3 * (uint64) nearest)
			CHECK(PipeannSearchRun(search));
		found = PipeannSearchWithin(search, RadiusOf(&cut, query, nearest));
		CHECK(found > 0.95 * nearest);
		CHECK(memory->counters.code_scans == 1);
		CHECK(memory->counters.nodes_explored < (uint64) IndexNodes(&cut) / 2);
		EndSearch(search, memory);
	}
	free(cut.data);
	free((uint8 *) cut.codes.entry_codes);
	free(entry_ids);
}

/* What searches that may end early did, over all queries. */
typedef struct EndedEarly
{
	int			found;			/* of the K nearest */
	int			ended;			/* searches that ended early */
	uint64		reads;
	uint64		reads_at_end;	/* when they had gone on */
} EndedEarly;

static void
EndEarlyOnce(int number, const PipeannSearchParams *params, int resident,
			 EndedEarly *sum)
{
	MemorySource *memory = OpenSource(l2_index, resident, number);
	PipeannSearch *search;
	float		query[MAX_DIM];
	double		radius;

	MakeQuery(l2_index, number, query);
	radius = RadiusOf(l2_index, query, K);
	search = BeginSearch(&l2_index->layout, &l2_index->codes,
						 &memory->source, query, params);
	CHECK(PipeannSearchRun(search));
	sum->reads += memory->counters.page_reads;
	sum->ended += PipeannSearchFrontier(search, PIPEANN_ITERATIVE_OFF).ended_early;
	if (!PipeannSearchFrontier(search, PIPEANN_ITERATIVE_OFF).ended_early)
		CHECK(memory->counters.nodes_explored >= (uint64) Min(params->ef, IndexNodes(l2_index)));
	for (int i = 0; i < K; i++)
		sum->found += KeyOf(l2_index, query,
							NodeOf(search, PipeannSearchPop(search))) <=
			radius + 1e-9;
	if (PipeannSearchFrontier(search, PIPEANN_ITERATIVE_OFF).ended_early)
		CHECK(PipeannSearchRun(search));
	CHECK(!PipeannSearchFrontier(search, PIPEANN_ITERATIVE_OFF).ended_early);
	CHECK(PipeannSearchFrontier(search, PIPEANN_ITERATIVE_OFF).results >= (uint64) params->ef);
	sum->reads_at_end += memory->counters.page_reads;
	EndSearch(search, memory);
}

/*
 * A search that may end early does so for some queries, reads less than the
 * whole list takes, and finds as much but for one in fifty; asked to go on it
 * explores the list.
 */
static void
EndsWhenTheNearestAreFound(void)
{
	for (int i = 0; i < PIPEANN_SEARCH_MODES; i++)
		for (int resident = 0; resident <= 50; resident += 50)
		{
			PipeannSearchParams params = {
				.policy = PipeannPolicies[i],
				.ef = 60,
				.by_page = true,
				.max_pages = MAX_FRAMES,
				.may_end_early = true
			};
			uint64		list = ReadsOf(l2_index, PipeannPolicies[i],
									   true, resident);
			EndedEarly	sum = {0};

			for (int j = 0; j < QUERIES; j++)
				EndEarlyOnce(j, &params, resident, &sum);
			if (!CHECK(sum.ended > 0 && sum.found >= 0.98 * QUERIES * K &&
					   sum.reads < list && sum.reads_at_end > sum.reads))
				NOTE("%s, %d %% resident: %d ended, %d found, %d reads, "
					 "%d at the end, %d for the list",
					 PipeannPolicies[i]->name, resident, sum.ended, sum.found, (int) sum.reads,
					 (int) sum.reads_at_end, (int) list);

			/* a list with room for all nodes is wanted whole */
			params.ef = IndexNodes(l2_index);
			params.may_end_early = false;
			sum.ended = 0;
			EndEarlyOnce(0, &params, resident, &sum);
			CHECK(sum.ended == 0);
		}
}

/*
 * With all pages in memory it does not end early, and with nearly all of them only
 * if it happens to meet several of those that are not.
 */
static void
DoesNotEndEarlyInMemory(void)
{
	for (int i = 0; i < PIPEANN_SEARCH_MODES; i++)
		for (int resident = 99; resident <= 100; resident++)
		{
			PipeannSearchParams params = {
				.policy = PipeannPolicies[i],
				.ef = 60,
				.by_page = true,
				.max_pages = MAX_FRAMES,
				.may_end_early = true
			};
			EndedEarly	sum = {0};

			for (int j = 0; j < QUERIES; j++)
				EndEarlyOnce(j, &params, resident, &sum);
			if (!CHECK(sum.ended <= (resident == 100 ? 0 : QUERIES / 20) &&
					   (resident == 100) == (sum.reads == 0)))
				NOTE("%s, %d %% resident: %d ended, %d reads",
					 PipeannPolicies[i]->name, resident, sum.ended, (int) sum.reads);
		}
}

/* What a search told of before it ended. */
typedef struct Told
{
	uint8	   *nodes;			/* how often of each */
	int			n;
} Told;

static void
NoteSettled(PipeannRowList rows, void *arg)
{
	Told	   *told = arg;

	CHECK(rows.n == 1);
	told->nodes[NodeOfRow(rows.rows)]++;
	told->n++;
}

/* Returns how many of those told of a search then returned among the first. */
static int
TellOnce(int number, int resident, PipeannSearchParams *params, Told *told)
{
	MemorySource *memory = OpenSource(l2_index, resident, number);
	PipeannSearch *search;
	float		query[MAX_DIM];
	int			right = 0;

	memset(told->nodes, 0, IndexNodes(l2_index));
	MakeQuery(l2_index, number, query);
	search = BeginSearch(&l2_index->layout, &l2_index->codes,
						 &memory->source, query, params);
	CHECK(PipeannSearchRun(search));
	for (int i = 0; i < IndexNodes(l2_index); i++)
		CHECK(told->nodes[i] <= 1);
	for (int i = 0; i < params->most_settled; i++)
		right += told->nodes[NodeOf(search, PipeannSearchPop(search))];
	CHECK(PipeannSearchRun(search));
	EndSearch(search, memory);
	return right;
}

/*
 * While a search waits it tells of results, of each once, and nearly all of them
 * are among the first that it returns. One that reads nothing does not.
 */
static void
TellsOfSettledResults(void)
{
	Told		told = {.nodes = PipeannAlloc(IndexNodes(l2_index))};

	for (int i = 0; i < PIPEANN_SEARCH_MODES; i++)
		for (int most = 0; most <= K; most += K / 2)
			for (int resident = 0; resident <= 100; resident += 50)
			{
				PipeannSearchParams params = {
					.policy = PipeannPolicies[i],
					.ef = 60,
					.by_page = true,
					.max_pages = MAX_FRAMES,
					.may_end_early = true,
					.settled = NoteSettled,
					.arg = &told,
					.most_settled = most
				};
				int			right = 0;

				told.n = 0;
				for (int j = 0; j < QUERIES; j++)
					right += TellOnce(j, resident, &params, &told);
				if (!CHECK(resident == 100 ? told.n == 0 :
						   told.n >= most * QUERIES / 4 &&
						   right >= 0.9 * told.n))
					NOTE("%s, %d %% resident, %d wanted: %d told, %d right",
						 PipeannPolicies[i]->name, resident, most, told.n,
						 right);
			}
	free(told.nodes);
}

/*
 * Nobody knows by how much the codes of out-of-line vectors err, so a search that
 * meets one explores its list.
 */
static void
DoesNotEndEarlyAmongOutOfLineVectors(void)
{
	Index	   *index = MakeIndex(2500, 16, PIPEANN_L2, PIPEANN_FLOAT4);
	int			ended[2] = {0, 0};

	for (int out_of_line = 0; out_of_line < 2; out_of_line++)
	{
		for (int i = 0; out_of_line && i < IndexNodes(index); i++)
			IndexSlotAtPlace(index, i)->flags |= PIPEANN_SLOT_OUT_OF_LINE;
		for (int i = 0; i < QUERIES; i++)
		{
			PipeannSearchParams params = {
				.policy = PipeannPolicies[PIPEANN_LOOK_AHEAD],
				.ef = 60,
				.by_page = true,
				.max_pages = MAX_FRAMES,
				.may_end_early = true,
				.out_of_line_distance = OutOfLineDistance
			};
			MemorySource *memory = OpenSource(index, 30, i);
			float		dist = i;
			PipeannSearch *search;
			float		query[MAX_DIM];

			params.arg = &dist;
			MakeQuery(index, i, query);
			search = BeginSearch(&index->layout, &index->codes,
								 &memory->source, query, &params);
			CHECK(PipeannSearchRun(search));
			ended[out_of_line] += PipeannSearchFrontier(search, PIPEANN_ITERATIVE_OFF).ended_early;
			EndSearch(search, memory);
		}
	}
	CHECK(ended[0] > 0 && ended[1] == 0);
}

/*
 * Results that were found stay when the pages are gone.
 */
static void
ResultsOutliveThePages(void)
{
	PipeannSearchParams params = {.by_page = true};
	MemorySource *memory = OpenSource(l2_index, 0, 1);
	PipeannSearch *search;
	const PipeannResult *result;
	float		query[MAX_DIM];
	int			n = 0;

	params.policy = PipeannPolicies[PIPEANN_PIPE];
	params.ef = 50;
	search = BeginQuery(l2_index, &l2_index->codes, memory, 3, query, &params);
	CHECK(PipeannSearchRun(search));
	result = PipeannSearchPeek(search);
	CHECK(PipeannSearchLoadSlot(search, result->id) != NULL);
	CHECK(PipeannSearchLoadSlot(search, result->id)->flags == PIPEANN_SLOT_USED);
	PipeannSearchReleasePages(search);
	CHECK(memory->nframes == 0);
	CHECK(PipeannSearchLoadSlot(search, result->id) == NULL);
	while ((result = PipeannSearchPop(search)) != NULL)
	{
		CHECK_CLOSE(KeyOf(l2_index, query, NodeOf(search, result)),
					result->dist, 1e-4);
		n++;
	}
	CHECK(n >= 50);
	CHECK((uint64) n == memory->counters.exact_distances);
	EndSearch(search, memory);
}

/*
 * A search in the memory of another, of another index and length, which went on
 * to the end, does what one in memory of its own does.
 */
static void
ForgetsTheSearchBefore(void)
{
	Index	   *other = MakeIndex(5000, 48, PIPEANN_COSINE, PIPEANN_FLOAT2);
	uint8	   *seen = PipeannAlloc(other->ids);

	for (int i = 0; i < PIPEANN_SEARCH_MODES * 6; i++)
	{
		PipeannSearchParams params = {.by_page = true};
		int			number = i / PIPEANN_SEARCH_MODES;
		MemorySource *memory[3];
		PipeannSearch *search[2];
		float		query[MAX_DIM];

		params.policy = PipeannPolicies[i % PIPEANN_SEARCH_MODES];
		params.max_pages = MAX_FRAMES;
		params.ef = 10 + 70 * number;
		memory[2] = OpenSource(other, 30, i);
		MakeQuery(other, i, query);
		search[1] = BeginSearch(&other->layout, &other->codes,
								&memory[2]->source, query, &params);
		(void) TakeAll(other, search[1], seen);
		EndSearch(search[1], memory[2]);

		params.ef = 200 - 30 * number;
		MakeQuery(l2_index, i, query);
		search[0] = PipeannSearchCreate();
		for (int j = 0; j < 2; j++)
		{
			memory[j] = OpenSource(l2_index, 30, i);
			if (j == 1)
				search[1] = IdleSearch;
			PipeannSearchBegin(search[j], &l2_index->layout, &l2_index->codes,
							   &memory[j]->source, query, &params);
			CHECK(PipeannSearchRun(search[j]));
		}
		CHECK(search[0] != search[1]);
		for (int j = 0; j < params.ef / 2; j++)
		{
			const PipeannResult *fresh = PipeannSearchPop(search[0]);
			const PipeannResult *again = PipeannSearchPop(search[1]);

			CHECK(fresh != NULL && again != NULL && fresh->id == again->id);
		}
		CHECK(memory[0]->counters.code_distances ==
			  memory[1]->counters.code_distances);
		CHECK(memory[0]->counters.page_reads == memory[1]->counters.page_reads);
		EndSearch(search[0], memory[0]);
		EndSearch(search[1], memory[1]);
	}
	free(seen);
}

int
main(void)
{
	PipeannKernelsInit();
	l2_index = MakeIndex(6000, 16, PIPEANN_L2, PIPEANN_FLOAT4);
	UNIT_RUN(GoesOnToTheEnd);
	UNIT_RUN(GoesOnToOtherGroups);
	UNIT_RUN(MeetsOtherGroupsOnTheWay);
	UNIT_RUN(EndsWhenTheNearestAreFound);
	UNIT_RUN(DoesNotEndEarlyInMemory);
	UNIT_RUN(TellsOfSettledResults);
	UNIT_RUN(DoesNotEndEarlyAmongOutOfLineVectors);
	UNIT_RUN(ResultsOutliveThePages);
	UNIT_RUN(ForgetsTheSearchBefore);
	return UnitDone();
}
