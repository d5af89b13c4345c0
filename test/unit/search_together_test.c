/*
 * search_together_test.c
 *		Searches of several indexes for one query find what one search of all would,
 *		with less work than searches apart.
 */
#include "search_tools.h"

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
	PipeannTogether together;
	PipeannSearchParams params;
	MemorySource *memory[PARTS];
	PipeannSearch *search[PARTS];
} Query;

/* What all queries did. */
typedef struct Sums
{
	int			found;			/* of the K nearest */
	uint64		reads;
	uint64		explored;
	int			without_read;	/* searches that read nothing */
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
Begin(Index **parts, int number, int ef, int resident, bool together)
{
	Query	   *query = PipeannAllocZero(sizeof(Query));

	query->together.searches = PARTS;
	query->params.policy = PipeannPolicies[PIPEANN_LOOK_AHEAD];
	query->params.ef = ef;
	query->params.may_end_early = true;
	query->params.together = together ? &query->together : NULL;
	for (int i = 0; i < PARTS; i++)
	{
		query->memory[i] = OpenSource(parts[i], resident, number);
		query->search[i] = BeginQuery(parts[i], &parts[i]->codes,
									  query->memory[i], number, query->query,
									  &query->params);
		if (together)
			CHECK(!isnan(PipeannSearchEnter(query->search[i])));
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

static Sums
Ask(Index **parts, int ef, int resident, bool together)
{
	Sums		sums = {0};

	for (int number = 0; number < QUERIES; number++)
	{
		Query	   *query = Begin(parts, number, ef, resident, together);
		double		radius = RadiusOfAll(parts, query->query);

		for (int i = 0; i < PARTS; i++)
		{
			const PipeannCounters *counters = &query->memory[i]->counters;
			const PipeannResult *result;

			CHECK(PipeannSearchRun(query->search[i]));
			while ((result = PipeannSearchPop(query->search[i])) != NULL &&
				   result->dist <= radius + 1e-6)
				sums.found++;
			sums.reads += counters->page_reads;
			sums.explored += counters->nodes_explored;
			sums.without_read += counters->page_reads == 0;
		}
		End(query);
	}
	return sums;
}

/* On disk they read less than apart, and each of them something. */
static void
FindTheNearestOfAll(void)
{
	Index	  **parts[] = {l2_parts, cosine_parts, product_parts};

	for (int i = 0; i < 3; i++)
		for (int resident = 0; resident <= 100; resident += 50)
		{
			Sums		apart = Ask(parts[i], 30, resident, false);
			Sums		together = Ask(parts[i], 30, resident, true);

			NOTE("metric %d, %d %% resident: %d of %d found, apart %d; %d reads, apart %d; %d explored, apart %d",
				 i, resident, together.found, QUERIES * K, apart.found,
				 (int) together.reads, (int) apart.reads,
				 (int) together.explored, (int) apart.explored);
			CHECK(together.found >= 0.93 * QUERIES * K);
			CHECK(together.found <= apart.found + QUERIES / 10);
			if (resident == 0)
				CHECK(together.without_read == 0 &&
					  together.reads < 0.7 * apart.reads);
			else if (resident == 100)
				CHECK(together.explored < 0.7 * apart.explored);
			else
				CHECK(together.reads < 0.9 * apart.reads);
		}
}

/* A longer list finds more, and reads more. */
static void
FindMoreWithLongerLists(void)
{
	for (int resident = 0; resident <= 100; resident += 100)
	{
		Sums		few = Ask(l2_parts, 10, resident, true);
		Sums		many = Ask(l2_parts, 100, resident, true);

		CHECK(many.found >= few.found);
		CHECK(many.found >= 0.98 * QUERIES * K);
		CHECK(many.explored > few.explored);
	}
}

/* With the same codebook they have one table, and find the same as with their own. */
static void
ShareATable(void)
{
	Index	   *same[PARTS];

	for (int i = 0; i < PARTS; i++)
		same[i] = l2_parts[0];
	for (int resident = 0; resident <= 100; resident += 50)
	{
		Sums		own = Ask(same, 30, resident, true);
		Sums		shared;

		l2_parts[0]->codes.pq.key = 1;
		shared = Ask(same, 30, resident, true);
		l2_parts[0]->codes.pq.key = 0;
		CHECK(shared.found == own.found);
		CHECK(shared.reads == own.reads);
		CHECK(shared.explored == own.explored);
	}
}

/* Memory for one page at a time: they come again, and as much is found. */
static void
KeepFewPages(void)
{
	int			found = 0;

	for (int number = 0; number < QUERIES; number++)
	{
		Query	   *query = Begin(l2_parts, number, 30, 0, false);
		double		radius = RadiusOfAll(l2_parts, query->query);
		PipeannSearchParams params = query->params;

		End(query);
		query = Begin(l2_parts, number, 30, 0, true);
		for (int i = 0; i < PARTS; i++)
			EndSearch(query->search[i], query->memory[i]);
		query->together.first = NULL;
		query->together.tabled = NULL;
		query->together.ncodes = 0;
		params.max_pages = 1;
		params.together = &query->together;
		for (int i = 0; i < PARTS; i++)
		{
			query->memory[i] = OpenSource(l2_parts[i], 0, number);
			query->search[i] = BeginSearch(&l2_parts[i]->layout,
										   &l2_parts[i]->codes,
										   &query->memory[i]->source,
										   query->query, &params);
			PipeannSearchEnter(query->search[i]);
		}
		for (int i = 0; i < PARTS; i++)
		{
			const PipeannResult *result;

			CHECK(PipeannSearchRun(query->search[i]));
			while ((result = PipeannSearchPop(query->search[i])) != NULL &&
				   result->dist <= radius + 1e-6)
				found++;
		}
		End(query);
	}
	CHECK(found >= 0.93 * QUERIES * K);
}

/*
 * Parts whose nodes no edge leads to are searched by codes, and not to the end. Nodes
 * nearer than what is believed were found.
 */
static void
IsBelievedAsFarAsItFound(void)
{
	Index	   *parts[PARTS];
	int			nearer = 0;
	int			missed = 0;

	MakeParts(parts, PIPEANN_L2);
	for (int i = 0; i < PARTS; i++)
		for (int node = 0; node < PART; node++)
			IndexSlotAtPlace(parts[i], node)->degree = 0;
	for (int number = 0; number < QUERIES; number++)
	{
		Query	   *query = Begin(parts, number, 30, 100, true);

		for (int i = 0; i < PARTS; i++)
		{
			PipeannSearch *search = query->search[i];
			const PipeannResult *result;
			float		trusted;

			CHECK(PipeannSearchRun(search));
			CHECK(PipeannSearchTell(search).is_code_scan);
			trusted = PipeannSearchTrusted(search);
			CHECK(trusted < INFINITY);
			for (int node = 0; node < PART; node++)
				nearer += KeyOf(parts[i], query->query, node) < trusted;
			while ((result = PipeannSearchPop(search)) != NULL)
				missed -= result->dist < trusted;
		}
		End(query);
	}
	missed += nearer;
	NOTE("%d nearer than what is believed, %d of them missed", nearer, missed);
	CHECK(missed <= nearer / 50);
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
	UNIT_RUN(ShareATable);
	UNIT_RUN(KeepFewPages);
	UNIT_RUN(IsBelievedAsFarAsItFound);
	return UnitDone();
}
