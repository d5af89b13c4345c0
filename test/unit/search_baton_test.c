/*
 * search_baton_test.c
 *		A search that goes from server to server finds what one in one piece finds, and
 *		reads of each server only its part; no message breaks anything.
 */
#include "search_tools.h"

#include "search/state.h"

#include <limits.h>
#include <stdlib.h>

#define SERVERS 5
#define NODES 4000
#define DIM 16
#define MOST_MESSAGE 65536

/* The servers that a search may go to, each of which has all pages on disk. */
typedef struct Servers
{
	const Index *index;
	MemorySource *memory[SERVERS];
	PipeannSearch *idle;		/* of the servers that are asked */
	const float *query;
	int			steps;
	uint64		codes;			/* distances of codes, and page reads, at others */
	uint64		reads;
	uint64	   *forged;			/* random number, or NULL: messages are whole */
	int			lost_at;		/* step from which on nobody answers; 0: none */
	uint32		lost_part;		/* of which nobody answers; 0: none */
	int			lost;			/* so often it was asked for in a search */
	int			after;			/* steps of others after that, in all */
	bool		idles;			/* others explore nothing */
	bool		cut;			/* answers lack their last bytes */
	bool		doubts;			/* others find that nobody is to end early */
} Servers;

static PipeannPassed
PassBack(PipeannSearch *search, uint32 part, void *arg)
{
	(void) search;
	(void) arg;
	CHECK(part < SERVERS);
	return PIPEANN_PASSES_BACK;
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

/* What another server does; returns the length of its answer, 0 if there is none. */
static Size
Answer(Servers *servers, const PipeannSearchParams *former, uint32 part,
	   char *message, Size size)
{
	const Index *index = servers->index;
	MemorySource *memory = OpenSource(index, 0, part);
	PipeannSearchParams params = {
		.policy = PipeannPolicies[PIPEANN_BATON],.max_pages = MAX_FRAMES,
		.parts = former->parts,.own_part = part,.pass_on = PassBack
	};
	Size		back = 0;

	if (PipeannSearchTakeParams(message, size, &params))
	{
		params.may_end_early &= !servers->doubts;
		PipeannSearchBegin(servers->idle, &index->layout, &index->codes,
						   &memory->source, servers->query, &params);
		if (PipeannSearchImport(servers->idle, false, message, size))
		{
			if (!servers->idles)
				PipeannSearchStep(servers->idle);
			CHECK(PipeannSearchExportSize(servers->idle) <= MOST_MESSAGE);
			back = PipeannSearchExport(servers->idle, true, message);
			CHECK(back <= MOST_MESSAGE);
		}
		PipeannSearchReleasePages(servers->idle);
		if (servers->forged == NULL)
			CheckReads(index, memory, &former->parts, part);
	}
	CHECK(memory->nframes == 0);
	servers->codes += memory->counters.code_distances;
	servers->reads += memory->counters.page_reads;
	free(memory->held);
	free(memory->requests);
	free(memory);
	return back;
}

/* Change some bytes of a message, or its length. */
static Size
Forge(uint64 *random, char *message, Size size)
{
	int			n = UnitRandom(random) % 4;

	for (int i = 0; i < n; i++)
	{
		Size		at = UnitRandom(random) % (UnitRandom(random) % 2 ? 192 : size);

		if (UnitRandom(random) % 2)
			message[Min(at, size - 1)] = (char) UnitRandom(random);
		else
			memset(message + Min(at, size - 1), UnitRandom(random) % 2 ? 0xFF : 0,
				   Min(size - Min(at, size - 1), 4));
	}
	return UnitRandom(random) % 8 == 0 ? UnitRandom(random) % (size + 1) : size;
}

/* A broken answer leaves a search as it was. */
static PipeannPassed
TakesNothing(PipeannSearch *search, const char *message, Size size)
{
	int			candidates = search->pool.count;
	uint64		results = search->results.count;
	uint64		reads = search->reads;

	CHECK(!PipeannSearchImport(search, true, message, size));
	CHECK(search->pool.count == candidates && search->results.count == results);
	CHECK(search->nelsewhere == 0 && search->reads == reads);
	return PIPEANN_NOT_PASSED;
}

static PipeannPassed
PassOn(PipeannSearch *search, uint32 part, void *arg)
{
	Servers    *servers = arg;
	static char message[MOST_MESSAGE];
	PipeannSearchParams params = {
		.parts = {SERVERS, servers->index->pages}
	};
	Size		size;

	CHECK(part < SERVERS && part != 0);
	CHECK(PipeannSearchExportSize(search) <= MOST_MESSAGE);
	size = PipeannSearchExport(search, false, message);
	servers->steps++;
	if (servers->lost_at > 0 && servers->steps >= servers->lost_at)
		return PIPEANN_NOT_PASSED;
	servers->lost += part == servers->lost_part;
	if (part == servers->lost_part)
		return PIPEANN_NOT_PASSED;
	servers->after += servers->lost;
	if (servers->forged != NULL)
		size = Forge(servers->forged, message, size);
	size = Answer(servers, &params, part, message, size);
	if (servers->forged != NULL && size > 0)
		size = Forge(servers->forged, message, size);
	if (servers->cut)
		return TakesNothing(search, message, size - 2);
	if (size > 0 && PipeannSearchImport(search, true, message, size))
		return PIPEANN_PASSED;
	CHECK(servers->forged != NULL || servers->idles);
	return PIPEANN_NOT_PASSED;
}

/* What all queries did. */
typedef struct Sums
{
	int			found;			/* of the K nearest */
	uint64		reads;
	uint64		codes;
	int			steps;
} Sums;

static void
Ask(Servers *servers, int number, PipeannSearchParams *params, Sums *sums)
{
	const Index *index = servers->index;
	MemorySource *memory = OpenSource(index, 0, number);
	float		query[MAX_DIM];
	const PipeannResult *result;
	PipeannSearch *search;
	double		radius;

	servers->query = query;
	servers->steps = servers->lost = 0;
	search = BeginQuery(index, &index->codes, memory, number, query, params);
	radius = RadiusOf(index, query, K);
	CHECK(PipeannSearchRun(search));
	CHECK(!servers->doubts || servers->steps == 0 || !search->termination.on);
	CHECK(servers->lost <= 1);
	CHECK(servers->steps < SERVERS || !(servers->idles || servers->cut || servers->lost_at == 1));
	if (servers->lost_at == 0 && servers->forged == NULL && !servers->cut && !servers->idles &&
		servers->lost_part == 0 && params->parts.n > 1)
		CheckReads(index, memory, &params->parts, params->own_part);
	for (int i = 0; i < K; i++)
	{
		result = PipeannSearchPop(search);
		if (!CHECK(result != NULL || servers->forged != NULL) || result == NULL)
			break;
		sums->found += result->dist <= radius + 1e-6;
		CHECK(servers->forged != NULL || NodeOf(search, result) < IndexNodes(index));
	}
	sums->reads += memory->counters.page_reads;
	sums->codes += memory->counters.code_distances;
	sums->steps += servers->steps;
	EndSearch(search, memory);
}

static Sums
AskAll(Servers *servers, PipeannSearchParams params)
{
	Sums		sums = {0};

	servers->codes = servers->reads = 0;
	params.policy = PipeannPolicies[PIPEANN_BATON];
	params.pass_on = PassOn;
	params.pass_on_arg = servers;
	for (int i = 0; i < QUERIES; i++)
		Ask(servers, i, &params, &sums);
	sums.reads += servers->reads;
	sums.codes += servers->codes;
	return sums;
}

static Servers
Start(PipeannMetric metric, int nodes)
{
	return (Servers) {
		.index = MakeIndex(nodes, DIM, metric, PIPEANN_FLOAT4),
		.idle = PipeannSearchCreate()
	};
}

/* One candidate at a time is the same order, but for those whose page has come. */
static void
OneAtATimeFindsAsMuch(void)
{
	static const PipeannMetric metrics[] = {PIPEANN_L2, PIPEANN_COSINE, PIPEANN_IP};

	for (int i = 0; i < 6; i++)
	{
		Servers		servers = Start(metrics[i % 3], NODES);
		PipeannSearchParams params = {
			.ef = 60,.width = 1,.may_end_early = i >= 3,.disabled = BY_PAGE
		};
		Sums		one;
		Sums		all;

		params.parts = (PipeannParts) {1, servers.index->pages};
		one = AskAll(&servers, params);
		CHECK(one.steps == 0);
		params.parts.n = SERVERS;
		all = AskAll(&servers, params);
		NOTE("metric %d: %d found, in one piece %d; reads %d, in one piece %d; %d steps",
			 metrics[i % 3], all.found, one.found, (int) all.reads, (int) one.reads,
			 all.steps);
		CHECK(all.steps > QUERIES / 2);
		CHECK(all.found >= one.found);
		CHECK(all.reads <= one.reads * 105 / 100);
	}
}

/* Wider, it goes no more often, for a few reads more. */
static void
WiderGoesLessOften(void)
{
	Servers		servers = Start(PIPEANN_L2, NODES);
	PipeannSearchParams params = {
		.ef = 60,.may_end_early = true,.parts = {1, servers.index->pages}
	};
	Sums		one = AskAll(&servers, params);
	int			steps = INT_MAX;

	for (int width = 1; width <= 64; width *= 4)
	{
		Sums		all;

		params.width = width;
		params.parts.n = SERVERS;
		all = AskAll(&servers, params);
		NOTE("width %d: %d found, in one piece %d; reads %d, %d; codes %d, %d; %d steps",
			 width, all.found, one.found, (int) all.reads, (int) one.reads,
			 (int) all.codes, (int) one.codes, all.steps);
		CHECK(all.found >= one.found * 98 / 100);
		CHECK(width > 16 || all.reads <= one.reads);
		CHECK(all.steps - QUERIES / 20 <= steps);
		steps = all.steps;
	}
}

/* Where nobody answers any more the search goes on here, and finds as much. */
static void
NobodyAnswers(void)
{
	Servers		servers = Start(PIPEANN_L2, NODES);
	PipeannSearchParams params = {
		.ef = 60,.may_end_early = true,.parts = {1, servers.index->pages}
	};
	Sums		one = AskAll(&servers, params);

	params.parts.n = SERVERS;
	for (servers.lost_at = 1; servers.lost_at <= 3; servers.lost_at++)
		CHECK(AskAll(&servers, params).found >= one.found * 98 / 100);
}

/* Of a part of which nobody answers pages are read here; the other servers go on to help. */
static void
OneDoesNotAnswer(void)
{
	Servers		servers = Start(PIPEANN_L2, NODES);
	PipeannSearchParams params = {
		.ef = 60,.may_end_early = true,.parts = {1, servers.index->pages}
	};
	Sums		one = AskAll(&servers, params);

	params.parts.n = SERVERS;
	for (servers.lost_part = 1; servers.lost_part < SERVERS; servers.lost_part++)
	{
		servers.after = 0;
		CHECK(AskAll(&servers, params).found >= one.found * 98 / 100);
		CHECK(servers.after > 0);
	}
}

/* Who explores nothing of what it is asked for is not asked again. */
static void
OthersExploreNothing(void)
{
	Servers		servers = Start(PIPEANN_L2, NODES);
	PipeannSearchParams params = {
		.ef = 60,.may_end_early = true,.parts = {1, servers.index->pages}
	};
	Sums		one = AskAll(&servers, params);

	params.parts.n = SERVERS;
	servers.idles = true;
	CHECK(AskAll(&servers, params).found >= one.found * 98 / 100);
}

/* Answers that lack their end are as if nobody answered. */
static void
CutAnswersAreNotTaken(void)
{
	Servers		servers = Start(PIPEANN_L2, NODES);
	PipeannSearchParams params = {
		.ef = 60,.may_end_early = true,.parts = {1, servers.index->pages}
	};
	Sums		one = AskAll(&servers, params);

	params.parts.n = SERVERS;
	servers.cut = true;
	CHECK(AskAll(&servers, params).found >= one.found * 98 / 100);
}

/* Where another server has learnt that codes are poor, nobody ends early. */
static void
DoubtComesBack(void)
{
	Servers		servers = Start(PIPEANN_L2, NODES);
	PipeannSearchParams params = {
		.ef = 60,.may_end_early = true,.parts = {SERVERS, servers.index->pages}
	};

	servers.doubts = true;
	CHECK(AskAll(&servers, params).steps > QUERIES / 2);
}

/* Going on, it comes to all nodes, and to none twice. */
static void
GoesOnToTheEnd(void)
{
	Servers		servers = Start(PIPEANN_L2, NODES);
	const Index *index = servers.index;
	uint8	   *seen = PipeannAlloc(index->ids);

	for (int i = 0; i < 8; i++)
	{
		MemorySource *memory = OpenSource(index, i % 2 == 0 ? 0 : 50, i);
		PipeannSearchParams params = {
			.policy = PipeannPolicies[PIPEANN_BATON],.ef = 20,.may_end_early = i >= 4,
			.parts = {SERVERS, index->pages},.pass_on = PassOn,.pass_on_arg = &servers,
			.disabled = i % 4 < 2 ? BY_PAGE : 0
		};
		float		query[MAX_DIM];
		PipeannSearch *search = BeginQuery(index, &index->codes, memory, i, query,
										   &params);

		servers.query = query;
		CHECK(TakeAll(index, search, seen) == IndexNodes(index));
		EndSearch(search, memory);
	}
}

/* A message that somebody made up gives rows that nobody believes, and no harm. */
static void
ForgedMessages(void)
{
	bool		quick = getenv("PIPEANN_UNIT_QUICK") != NULL;
	uint64		random = 1;
	Servers		servers = Start(PIPEANN_L2, NODES / 8);
	PipeannSearchParams params = {
		.policy = PipeannPolicies[PIPEANN_BATON],.ef = 8,.may_end_early = true,
		.parts = {SERVERS, servers.index->pages},.pass_on = PassOn,
		.pass_on_arg = &servers
	};
	Sums		sums = {0};

	servers.forged = &random;
	for (int i = 0; sums.steps < (quick ? 1000 : 100000); i++)
		Ask(&servers, i % QUERIES, &params, &sums);
}

int
main(void)
{
	UNIT_RUN(OneAtATimeFindsAsMuch);
	UNIT_RUN(WiderGoesLessOften);
	UNIT_RUN(NobodyAnswers);
	UNIT_RUN(OneDoesNotAnswer);
	UNIT_RUN(OthersExploreNothing);
	UNIT_RUN(CutAnswersAreNotTaken);
	UNIT_RUN(DoubtComesBack);
	UNIT_RUN(GoesOnToTheEnd);
	UNIT_RUN(ForgedMessages);
	return UnitDone();
}
