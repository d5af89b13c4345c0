/*
 * search_baton_test.c
 *		A search that asks servers for what they know of their parts finds what one alone
 *		finds, and has each server read pages of its part only; no answer breaks anything.
 */
#include "search_tools.h"

#include "search/state.h"

#include <stdlib.h>

#define SERVERS 5
#define NODES 4000
#define DIM 16
#define MOST_IDS 4096

/* The servers that a search may ask, each of which has all pages on disk. */
typedef struct Servers
{
	const Index *index;
	PipeannSearch *idle;		/* of the servers that are asked */
	const float *query;
	uint32		asked;			/* bits of parts that were asked in one search */
	int			steps;
	uint64		codes;			/* distances of codes, and page reads, at others */
	uint64		reads;
	uint64	   *forged;			/* random number, or NULL: answers are true */
	bool		silent;			/* nobody answers */
} Servers;

static bool
PassBack(PipeannSearch *search, uint32 part, void *arg)
{
	(void) search;
	(void) arg;
	CHECK(part < SERVERS);
	return false;
}

/* Each page that a source has been asked for is of its part. */
static void
CheckReads(const Index *index, const MemorySource *memory, const PipeannParts *parts,
		   uint32 part)
{
	int			others = 0;

	for (uint32 page = 0; page < index->pages; page++)
		others += memory->requests[page] > 0 &&
			PipeannPartOfPage(parts, page) != part;
	CHECK(others == 0);
}

/* What another server does: its list, of which ids[MOST_IDS] are set. */
static uint32
Answer(Servers *servers, const PipeannParts *parts, uint32 part,
	   const PipeannIdList *asked, uint32 *ids)
{
	const Index *index = servers->index;
	MemorySource *memory = OpenSource(index, 0, part);
	PipeannSearchParams params = {
		.policy = PipeannPolicies[PIPEANN_BATON],.max_pages = MAX_FRAMES,
		.ef = (int) asked->length,.parts = {parts->n, parts->pages, part},.pass_on = PassBack
	};
	PipeannIdList list;

	PipeannSearchBegin(servers->idle, &index->layout, &index->codes,
					   &memory->source, servers->query, &params);
	PipeannSearchStep(servers->idle, (const char *) asked->ids, asked->n, asked->explored);
	list = PipeannSearchList(servers->idle);
	CHECK(list.n <= list.length && list.n <= MOST_IDS && list.explored <= list.n);
	memcpy(ids, list.ids, list.n * sizeof(uint32));
	pfree(list.ids);
	PipeannSearchReleasePages(servers->idle);
	CheckReads(index, memory, parts, part);
	CHECK(memory->nframes == 0);
	servers->codes += memory->counters.code_distances;
	servers->reads += memory->counters.page_reads;
	free(memory->held);
	free(memory->requests);
	free(memory);
	return list.n;
}

/* Ids that somebody made up, of nodes and of none. */
static uint32
Forge(uint64 *random, const Index *index, uint32 *ids)
{
	uint32		n = UnitRandom(random) % MOST_IDS;

	for (uint32 i = 0; i < n; i++)
		ids[i] = UnitRandom(random) % 2 ? UnitRandom(random) :
			UnitRandom(random) % index->ids;
	return n;
}

static bool
PassOn(PipeannSearch *search, uint32 part, void *arg)
{
	Servers    *servers = arg;
	static uint32 ids[MOST_IDS];
	PipeannParts parts = {SERVERS, servers->index->pages, 0};
	PipeannIdList list = PipeannSearchList(search);
	uint32		n = 0;

	CHECK(part < SERVERS && part != 0);
	CHECK((servers->asked & (1U << part)) == 0);
	servers->asked |= 1U << part;
	servers->steps++;
	if (servers->forged != NULL)
		n = Forge(servers->forged, servers->index, ids);
	else if (!servers->silent)
		n = Answer(servers, &parts, part, &list, ids);
	pfree(list.ids);
	PipeannSearchTakeIds(search, (const char *) ids, n);
	return true;
}

/* What all queries did. */
typedef struct Sums
{
	int			found;			/* of the K nearest */
	uint64		reads;			/* here, of pages of others' parts */
	uint64		codes;			/* of all servers */
	int			steps;
} Sums;

static Sums
AskAll(Servers *servers, PipeannSearchParams params)
{
	PipeannParts parts = {SERVERS, servers->index->pages, 0};
	Sums		sums = {0};

	servers->codes = servers->reads = 0;
	params.policy = PipeannPolicies[params.parts.n > 1 ? PIPEANN_BATON : PIPEANN_LOOK_AHEAD];
	params.pass_on = params.parts.n > 1 ? PassOn : NULL;
	params.arg = servers;
	for (int i = 0; i < QUERIES; i++)
	{
		MemorySource *memory = OpenSource(servers->index, 0, i);
		float		query[MAX_DIM];
		PipeannSearch *search = BeginQuery(servers->index, &servers->index->codes,
										   memory, i, query, &params);
		double		radius = RadiusOf(servers->index, query, K);

		servers->query = query;
		servers->steps = 0;
		servers->asked = 0;
		CHECK(PipeannSearchRun(search));
		for (int j = 0; j < K; j++)
		{
			const PipeannResult *result = PipeannSearchPop(search);

			if (CHECK(result != NULL))
				sums.found += result->dist <= radius + 1e-6;
		}
		for (uint32 page = 0; page < servers->index->pages; page++)
			sums.reads += memory->requests[page] > 0 &&
				PipeannPartOfPage(&parts, page) != 0;
		sums.codes += memory->counters.code_distances;
		sums.steps += servers->steps;
		EndSearch(search, memory);
	}
	sums.codes += servers->codes;
	return sums;
}

static Servers
Start(PipeannMetric metric)
{
	static const Index *made[PIPEANN_COSINE + 1];	/* making them takes most of the time */

	if (made[metric] == NULL)
		made[metric] = MakeIndex(NODES, DIM, metric, PIPEANN_FLOAT4);
	return (Servers) {
		.index = made[metric],
		.idle = PipeannSearchCreate()
	};
}

/* It finds as much as one alone, which reads more pages of others' parts. */
static void
FindsAsMuch(void)
{
	static const PipeannMetric metrics[] = {PIPEANN_L2, PIPEANN_COSINE, PIPEANN_IP};

	for (int i = 0; i < 12; i++)
	{
		static const int widths[] = {0, 1, 4, 32};
		Servers		servers = Start(metrics[i % 3]);
		PipeannSearchParams params = {
			.ef = 60,.width = widths[i / 3],.may_end_early = true,
			.parts = {1, servers.index->pages, 0}
		};
		Sums		one = AskAll(&servers, params);
		Sums		all;

		CHECK(one.steps == 0);
		params.parts.n = SERVERS;
		all = AskAll(&servers, params);
		NOTE("metric %d, width %d: %d found, alone %d; others' pages read here %d, alone %d; others read %d; codes %d, %d; %d steps",
			 metrics[i % 3], params.width, all.found, one.found, (int) all.reads,
			 (int) one.reads, (int) servers.reads, (int) all.codes, (int) one.codes, all.steps);
		CHECK(all.steps > QUERIES / 2);
		CHECK(all.found >= one.found * 98 / 100);
		CHECK(all.reads <= one.reads);
	}
}

/* Where nobody answers, or what is not true, the search finds as much here. */
static void
AnswersAreHints(void)
{
	uint64		random = 1;
	Servers		servers = Start(PIPEANN_L2);
	PipeannSearchParams params = {
		.ef = 60,.may_end_early = true,.parts = {1, servers.index->pages, 0}
	};
	Sums		one = AskAll(&servers, params);
	bool		quick = getenv("PIPEANN_UNIT_QUICK") != NULL;

	params.parts.n = SERVERS;
	servers.silent = true;
	CHECK(AskAll(&servers, params).found >= one.found * 98 / 100);
	servers.forged = &random;
	for (int i = 0; i < (quick ? 3 : 100); i++)
		CHECK(AskAll(&servers, params).found >= one.found * 98 / 100);
}

/* Going on, it comes to all nodes, and to none twice. */
static void
GoesOnToTheEnd(void)
{
	Servers		servers = Start(PIPEANN_L2);
	const Index *index = servers.index;
	uint8	   *seen = PipeannAlloc(index->ids);

	for (int i = 0; i < 8; i++)
	{
		MemorySource *memory = OpenSource(index, i % 2 == 0 ? 0 : 50, i);
		PipeannSearchParams params = {
			.policy = PipeannPolicies[PIPEANN_BATON],.ef = 20,.may_end_early = i >= 4,
			.parts = {SERVERS, index->pages, 0},.pass_on = PassOn,.arg = &servers,
			.by_page = i % 4 < 2
		};
		float		query[MAX_DIM];
		PipeannSearch *search = BeginQuery(index, &index->codes, memory, i, query,
										   &params);

		servers.query = query;
		servers.asked = 0;
		CHECK(TakeAll(index, search, seen) == IndexNodes(index));
		EndSearch(search, memory);
	}
}

int
main(void)
{
	UNIT_RUN(FindsAsMuch);
	UNIT_RUN(AnswersAreHints);
	UNIT_RUN(GoesOnToTheEnd);
	return UnitDone();
}
