/*
 * search_several_test.c
 *		Searches of several indexes for one query, one after the other, find what one search
 *		of all would, with less work than searches apart: each goes as far as the nearest
 *		rows that those before it have found.
 */
#include "search_tools.h"
#include "search/state.h"

#include <math.h>
#include <stdlib.h>

#include "distance/distance.h"

#define PARTS 6
#define PART 2500
#define DIM 16

/* One query of all parts. */
typedef struct Query
{
	float		query[MAX_DIM];
	PipeannSearchParams params;
	MemorySource *memory[PARTS];
	PipeannSearch *search[PARTS];
	float		entered[PARTS];
} Query;

/* What all queries did. */
typedef struct Sums
{
	int			found;			/* of the K nearest */
	uint64		reads;
	uint64		explored;
} Sums;

static Index *l2_parts[PARTS];
static Index *cosine_parts[PARTS];
static Index *product_parts[PARTS];

static void
MakeParts(Index **parts, PipeannMetric metric)
{
	for (int i = 0; i < PARTS; i++)
		parts[i] = MakePart(PART, DIM, metric, PIPEANN_FLOAT4, 1 + i);
}

/* The smallest K keys of all parts: the last of them. */
static double
RadiusOfAll(Index **parts, const float *query)
{
	double		nearest[K];

	for (int i = 0; i < K; i++)
		nearest[i] = INFINITY;
	for (int part = 0; part < PARTS; part++)
		for (int node = 0; node < PART; node++)
			KeepNearest(nearest, K, KeyOf(parts[part], query, node));
	return nearest[K - 1];
}

static Query *
Begin(Index **parts, int number, int ef, int resident, bool apart, uint32 max_pages)
{
	Query	   *query = PipeannAllocZero(sizeof(Query));

	query->params.policy = PipeannPolicies[PIPEANN_LOOK_AHEAD];
	query->params.ef = ef;
	query->params.may_end_early = true;
	query->params.one_of_several = !apart;
	query->params.max_pages = max_pages;
	for (int i = 0; i < PARTS; i++)
	{
		query->memory[i] = OpenSource(parts[i], resident, number);
		query->search[i] = BeginQuery(parts[i], &parts[i]->codes,
									  query->memory[i], number, query->query,
									  &query->params);
		query->entered[i] = PipeannSearchEnter(query->search[i]);
		CHECK(!isnan(query->entered[i]));
	}
	return query;
}

static void
End(Query *query)
{
	for (int i = 0; i < PARTS; i++)
		EndSearch(query->search[i], query->memory[i]);
	free(query);
}

/* The search that begins nearest of those not run yet. */
static int
NextOf(Query *query)
{
	int			next = 0;

	for (int i = 1; i < PARTS; i++)
		if (query->entered[i] < query->entered[next])
			next = i;
	query->entered[next] = INFINITY;
	return next;
}

static Sums
Ask(Index **parts, int ef, int resident, bool apart, uint32 max_pages)
{
	Sums		sums = {0};

	for (int number = 0; number < QUERIES; number++)
	{
		Query	   *query = Begin(parts, number, ef, resident, apart, max_pages);
		double		radius = RadiusOfAll(parts, query->query);
		double		nearest[K];

		for (int i = 0; i < K; i++)
			nearest[i] = INFINITY;
		for (int n = 0; n < PARTS; n++)
		{
			int			i = NextOf(query);
			const PipeannCounters *counters = &query->memory[i]->counters;
			const PipeannResult *result;

			if (!isinf(nearest[K - 1]))
				PipeannSearchSetHorizon(query->search[i], (float) nearest[K - 1]);
			CHECK(PipeannSearchRun(query->search[i]));
			while ((result = PipeannSearchPop(query->search[i])) != NULL)
			{
				KeepNearest(nearest, K, result->dist);
				sums.found += result->dist <= radius + 1e-6;
			}
			sums.reads += counters->page_reads;
			sums.explored += counters->nodes_explored;
		}
		End(query);
	}
	return sums;
}

/* They find as much, and read less than apart, or explore less. */
static void
FindTheNearestOfAll(void)
{
	Index	  **parts[] = {l2_parts, cosine_parts, product_parts};

	for (int i = 0; i < 3; i++)
		for (int resident = 0; resident <= 100; resident += 50)
		{
			Sums		apart = Ask(parts[i], 30, resident, true, PG_UINT32_MAX);
			Sums		several = Ask(parts[i], 30, resident, false, PG_UINT32_MAX);

			NOTE("metric %d, %d %% resident: %d of %d found, apart %d; %d reads, apart %d; %d explored, apart %d",
				 i, resident, several.found, QUERIES * K, apart.found,
				 (int) several.reads, (int) apart.reads,
				 (int) several.explored, (int) apart.explored);
			CHECK(several.found >= 0.93 * QUERIES * K);
			CHECK(several.found <= apart.found + QUERIES / 10);
			if (resident == 100)
				CHECK(several.explored < 0.7 * apart.explored);
			else
				CHECK(several.reads < 0.95 * apart.reads);
		}
}

/* A longer list finds more, and explores more. */
static void
FindMoreWithLongerLists(void)
{
	for (int resident = 0; resident <= 100; resident += 100)
	{
		Sums		few = Ask(l2_parts, 10, resident, false, PG_UINT32_MAX);
		Sums		many = Ask(l2_parts, 100, resident, false, PG_UINT32_MAX);

		CHECK(many.found >= few.found);
		CHECK(many.found >= 0.98 * QUERIES * K);
		CHECK(many.explored > few.explored);
	}
}

/* Memory for one page at a time: they come again, and as much is found. */
static void
KeepFewPages(void)
{
	CHECK(Ask(l2_parts, 30, 0, false, 1).found >= 0.93 * QUERIES * K);
}

/*
 * Nothing beyond the horizon is looked for: after its first run a search ends, without
 * going through all codes.
 */
static void
EndAtTheHorizon(void)
{
	for (int number = 0; number < QUERIES; number++)
	{
		Query	   *query = Begin(l2_parts, number, 30, 100, false, PG_UINT32_MAX);

		for (int i = 0; i < PARTS; i++)
		{
			PipeannSearch *search = query->search[i];

			PipeannSearchSetHorizon(search, 0);
			CHECK(PipeannSearchRun(search));
			while (PipeannSearchRun(search))
				;
			CHECK(!search->code_scan.begun);
			CHECK(query->memory[i]->counters.nodes_explored < PART / 10);
		}
		End(query);
	}
}

int
main(void)
{
	PipeannKernelsInit();
	MakeParts(l2_parts, PIPEANN_L2);
	MakeParts(cosine_parts, PIPEANN_COSINE);
	MakeParts(product_parts, PIPEANN_IP);
	UNIT_RUN(FindTheNearestOfAll);
	UNIT_RUN(FindMoreWithLongerLists);
	UNIT_RUN(KeepFewPages);
	UNIT_RUN(EndAtTheHorizon);
	return UnitDone();
}
