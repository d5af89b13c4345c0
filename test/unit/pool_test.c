/*
 * pool_test.c
 *		The candidate pool, and when a search may end early.
 */
#include "unit.h"

#include "search/list.c"

#define POOL_RUNS 200
#define MAX_CANDIDATES 2000

static void
PoolInit(PipeannPool *pool, int length)
{
	memset(pool, 0, sizeof(*pool));
	PoolReset(pool, length);
}

/* Insert one; returns its position, or -1 if it went to the discards. */
static int
PoolInsert(PipeannPool *pool, uint32 id, float dist)
{
	PipeannCandidate item = {
		.dist = dist,.id = id,.page = PIPEANN_NO_PAGE,.ref = PIPEANN_NO_REF
	};

	PipeannPoolMerge(pool, &item, 1);
	for (int i = 0; i < pool->count; i++)
		if (pool->items[i].id == id)
			return i;
	return -1;
}

static int
CompareFloats(const void *a, const void *b)
{
	float		x = *(const float *) a;
	float		y = *(const float *) b;

	return (x > y) - (x < y);
}

static bool
PoolIsSorted(const PipeannPool *pool)
{
	for (int i = 1; i < pool->count; i++)
		if (pool->items[i - 1].dist > pool->items[i].dist)
			return false;
	return true;
}

/*
 * The pool holds the nearest of what was inserted, whatever the order.
 */
static void
PoolKeepsTheNearest(void)
{
	uint64		random = 1;

	for (int run = 0; run < POOL_RUNS; run++)
	{
		PipeannPool pool;
		float		dists[MAX_CANDIDATES];
		int			capacity = 1 + UnitRandom(&random) % 100;
		int			n = 1 + UnitRandom(&random) % 500;

		PoolInit(&pool, capacity);
		for (int i = 0; i < n; i++)
		{
			int			at;

			dists[i] = UnitFewDistances(&random);
			at = PoolInsert(&pool, i, dists[i]);
			if (at >= 0)
			{
				CHECK(pool.items[at].id == (uint32) i);
				CHECK(pool.items[at].dist == dists[i]);
				CHECK(pool.items[at].ref == PIPEANN_NO_REF);
				CHECK(!pool.items[at].explored);
			}
		}
		qsort(dists, n, sizeof(float), CompareFloats);
		CHECK(pool.count == Min(n, capacity));
		CHECK(pool.count + (int) pool.ndiscards == n);
		CHECK(PoolIsSorted(&pool));
		for (int i = 0; i < pool.count; i++)
			CHECK(pool.items[i].dist == dists[i]);
	}
}

/*
 * The first open and the first unread candidate, while candidates come, are
 * read and are explored.
 */
static void
PoolKnowsItsFirstOnes(void)
{
	uint64		random = 2;
	PipeannPool pool;

	PoolInit(&pool, 40);
	CHECK(PipeannPoolFirstOpen(&pool) == 0);
	CHECK(PipeannPoolFirstUnread(&pool) == 0);
	for (int i = 0; i < MAX_CANDIDATES; i++)
	{
		int			open = 0;
		int			unread = 0;

		PoolInsert(&pool, i, UnitRandomFloat(&random, 0, 1));
		if (UnitRandom(&random) % 2 == 0)
		{
			int			at = UnitRandom(&random) % pool.count;

			pool.items[at].ref = i;
			if (UnitRandom(&random) % 2 == 0)
				pool.items[at].explored = 1;
		}
		while (open < pool.count && pool.items[open].explored)
			open++;
		while (unread < pool.count &&
			   pool.items[unread].ref != PIPEANN_NO_REF)
			unread++;
		CHECK(PipeannPoolFirstOpen(&pool) == open);
		CHECK(PipeannPoolFirstUnread(&pool) == unread);
	}
}

/*
 * Exploring the pool and refilling it hands out every candidate once, and each
 * refill the nearest ones left.
 */
static void
PoolRefillsFromWhatFellOut(void)
{
	uint64		random = 3;
	static bool seen[MAX_CANDIDATES];
	PipeannPool pool;
	int			total = 0;
	float		last = -1;

	memset(seen, 0, sizeof(seen));
	PoolInit(&pool, 10);
	for (int i = 0; i < MAX_CANDIDATES; i++)
		PoolInsert(&pool, i, UnitFewDistances(&random));
	for (int capacity = 10; pool.count > 0; capacity += 7)
	{
		CHECK(PoolIsSorted(&pool));
		CHECK(PipeannPoolFirstOpen(&pool) == 0);
		CHECK(PipeannPoolFirstUnread(&pool) == 0);
		CHECK(pool.items[0].dist >= last);
		last = pool.items[pool.count - 1].dist;
		for (int i = 0; i < pool.count; i++)
		{
			CHECK(!seen[pool.items[i].id]);
			seen[pool.items[i].id] = true;
			pool.items[i].explored = 1;
		}
		total += pool.count;
		PoolWiden(&pool, capacity, 0);
		PoolRefill(&pool, capacity);
		CHECK(pool.count <= Max(capacity, 10));
	}
	CHECK(total == MAX_CANDIDATES);
	CHECK(pool.ndiscards == 0);
}

/*
 * A candidate that was not explored comes back; one that was does not.
 */
static void
PoolRefillsFromItself(void)
{
	PipeannPool pool;

	PoolInit(&pool, 4);
	for (int i = 0; i < 6; i++)
		PoolInsert(&pool, i, i);
	pool.items[0].explored = 1;
	pool.items[2].explored = 1;
	PoolRefill(&pool, 2);
	CHECK(pool.count == 2);
	CHECK(pool.items[0].id == 1);
	CHECK(pool.items[1].id == 3);
	CHECK(!pool.items[0].explored && !pool.items[1].explored);
	CHECK(pool.ndiscards == 2);
}

static void
PoolOfOne(void)
{
	PipeannPool pool;

	PoolInit(&pool, 1);
	CHECK(PoolInsert(&pool, 7, 3) == 0);
	CHECK(PoolInsert(&pool, 8, 4) == -1);
	CHECK(PoolInsert(&pool, 9, 3) == -1);
	CHECK(PoolInsert(&pool, 10, 1) == 0);
	CHECK(pool.count == 1 && pool.items[0].id == 10);
	CHECK(pool.ndiscards == 3);
}

/*
 * Infinite and undefined distances keep the pool whole: whether candidates come
 * one by one or together, each is there once.
 */
static void
PoolTakesAnyDistance(void)
{
	const float odd[] = {0.0f / 0.0f, 1.0f / 0.0f, -1.0f / 0.0f, -0.0f, 1e38f};
	uint64		random = 4;

	for (int most = 1; most <= 32; most++)
	{
		PipeannPool pool;
		PipeannCandidate items[32];
		bool		seen[500] = {false};
		int			total = 0;
		int			n;

		PoolInit(&pool, 16 + most);
		for (int id = 0; id < 500; id += n)
		{
			n = 1 + (int) (UnitRandom(&random) % most);
			n = Min(n, 500 - id);
			memset(items, 0, sizeof(items));
			for (int i = 0; i < n; i++)
			{
				items[i].id = id + i;
				items[i].dist = odd[UnitRandom(&random) % 5];
			}
			if (n == 1)
				PoolInsert(&pool, items[0].id, items[0].dist);
			else
				PipeannPoolMerge(&pool, items, n);
		}
		while (pool.count > 0)
		{
			for (int i = 0; i < pool.count; i++)
			{
				CHECK(!seen[pool.items[i].id]);
				seen[pool.items[i].id] = true;
				pool.items[i].explored = 1;
			}
			total += pool.count;
			PoolRefill(&pool, 16);
		}
		CHECK(total == 500);
	}
}

/*
 * Candidates merged at once are where they would be one by one, whatever their
 * number, the pool's size, and ties among them.
 */
static void
PoolMergesAsItInserts(void)
{
	uint64		random = 5;

	for (int capacity = 1; capacity <= 60; capacity += 1 + capacity / 4)
	{
		PipeannPool one;
		PipeannPool many;
		uint32		next = 0;

		PoolInit(&one, capacity);
		PoolInit(&many, capacity);
		for (int round = 0; round < 40; round++)
		{
			PipeannCandidate items[32];
			int			n = UnitRandom(&random) % 33;
			int			explored = UnitRandom(&random) % capacity;

			memset(items, 0, sizeof(items));
			for (int i = 0; i < n; i++)
			{
				items[i].id = next++;
				items[i].dist = UnitFewDistances(&random);
				items[i].page = PIPEANN_NO_PAGE;
				items[i].ref = PIPEANN_NO_REF;
				PoolInsert(&one, items[i].id, items[i].dist);
			}
			PipeannPoolMerge(&many, items, n);
			CHECK(one.count == many.count && one.ndiscards == many.ndiscards);
			CHECK(PoolIsSorted(&many));
			for (int i = 0; i < many.count; i++)
				CHECK(memcmp(&one.items[i].dist, &many.items[i].dist,
							 sizeof(float)) == 0);
			CHECK(PipeannPoolFirstOpen(&one) == PipeannPoolFirstOpen(&many));
			CHECK(PipeannPoolFirstUnread(&one) ==
				  PipeannPoolFirstUnread(&many));
			if (explored < many.count && !many.items[explored].explored)
			{
				PipeannPoolSetExplored(&one, explored);
				PipeannPoolSetExplored(&many, explored);
			}
		}
	}
}

/* How many candidates of each beam are not explored, counted. */
static bool
BeamsAreCounted(const PipeannPool *pool)
{
	int			chosen[PIPEANN_BEAMS] = {0};

	for (int i = 0; i < pool->count; i++)
		if (!pool->items[i].explored)
			chosen[pool->items[i].beam]++;
	return memcmp(chosen, pool->chosen, sizeof(chosen)) == 0;
}

/*
 * The pool knows how many of a beam are left, whatever is explored, falls out or
 * comes back, and with the memory of a pool that is over.
 */
static void
PoolCountsItsBeams(void)
{
	uint64		random = 12;
	PipeannPool pool;
	uint32		next = 0;

	PoolInit(&pool, 3);
	for (int capacity = 1; capacity <= 100; capacity *= 10)
	{
		PoolReset(&pool, capacity);
		CHECK(pool.count == 0 && pool.ndiscards == 0);
		CHECK(pool.capacity == capacity && BeamsAreCounted(&pool));
		for (int round = 0; round < 500; round++)
		{
			PipeannCandidate items[4];
			int			at = UnitRandom(&random) % capacity;

			memset(items, 0, sizeof(items));
			for (int i = 0; i < 4; i++)
			{
				items[i].id = next++;
				items[i].dist = UnitRandomFloat(&random, 0, 1);
				items[i].page = PIPEANN_NO_PAGE;
				items[i].ref = PIPEANN_NO_REF;
			}
			PipeannPoolMerge(&pool, items, UnitRandom(&random) % 5);
			PoolInsert(&pool, next++, UnitRandomFloat(&random, 0, 1));
			if (at < pool.count && !pool.items[at].explored)
			{
				PipeannPoolChoose(&pool, at, UnitRandom(&random) % PIPEANN_BEAMS);
				if (UnitRandom(&random) % 2 == 0)
					PipeannPoolSetExplored(&pool, at);
			}
			if (round % 100 == 99)
				PoolRefill(&pool, capacity);
			CHECK(PoolIsSorted(&pool) && BeamsAreCounted(&pool));
		}
	}
}

/*
 * A pool that grows keeps what it has, in order, and takes that much more; it
 * never becomes smaller.
 */
static void
PoolWidens(void)
{
	PipeannPool pool;

	PoolInit(&pool, 4);
	for (int i = 0; i < 6; i++)
		PoolInsert(&pool, i, 10 - i);
	CHECK(pool.count == 4 && pool.ndiscards == 2);
	PoolWiden(&pool, 6, 9);
	CHECK(pool.length == 6 && pool.capacity == 9);
	CHECK(pool.count == 4 && pool.items[0].dist == 5);
	for (int i = 10; i < 20; i++)
		PoolInsert(&pool, i, i);
	CHECK(pool.count == 9 && PoolIsSorted(&pool));
	PoolWiden(&pool, 2, 3);
	CHECK(pool.length == 6 && pool.capacity == 9);
}

/*
 * Those farther than the bound need not be explored, but for the first few; a
 * bound that is not a number is none.
 */
static void
PoolIsOpenUpToItsBound(void)
{
	PipeannPool pool;

	PoolInit(&pool, 8);
	for (int i = 0; i < 8; i++)
		PoolInsert(&pool, i, i);
	pool.least = 2;
	pool.bound = 4;
	for (int i = 0; i < 8; i++)
	{
		CHECK(PipeannPoolWants(&pool, i) == (i <= 4));
		CHECK(PipeannPoolIsOpen(&pool) == (i <= 4));
		pool.items[i].explored = 1;
	}
	CHECK(!PipeannPoolWants(&pool, 8));
	for (int i = 0; i < 8; i++)
		pool.items[i].explored = 0;
	pool.first_open = 0;
	pool.bound = -1;
	CHECK(PipeannPoolWants(&pool, 1) && !PipeannPoolWants(&pool, 2));
	pool.bound = 0.0f / 0.0f;
	CHECK(PipeannPoolWants(&pool, 7));
	pool.length = 5;
	CHECK(PipeannPoolWants(&pool, 4) && !PipeannPoolWants(&pool, 5));
}

/*
 * A batch of candidates not seen before, of which about one in three matches. Like
 * searches it leaves out others that would not come into the head.
 */
static int
SomeCandidates(uint64 *random, PipeannPool *pool, uint32 *next,
			   PipeannCandidate *items)
{
	int			offered = UnitRandom(random) % 33;
	int			n = 0;

	memset(items, 0, 32 * sizeof(PipeannCandidate));
	for (int i = 0; i < offered; i++)
	{
		items[n].id = (*next)++;
		items[n].dist = UnitFewDistances(random);
		items[n].page = PIPEANN_NO_PAGE;
		items[n].ref = PIPEANN_NO_REF;
		items[n].matches = UnitRandom(random) % 3 == 0;
		if (items[n].matches || PipeannPoolTakesInHead(pool, items[n].dist))
			n++;
		else
			PipeannPoolDiscard(pool, items[n].id, items[n].dist);
	}
	return n;
}

/* Behind the head all match, and the list is long enough for this many of these. */
static void
CheckHead(const PipeannPool *pool, int head, int matching)
{
	int			in_head = 0;

	CHECK(PoolIsSorted(pool));
	for (int i = 0; i < pool->count; i++)
		if (i < head)
			in_head += pool->items[i].matches;
		else
			CHECK(pool->items[i].matches);
	CHECK(pool->length == head + Max(matching - in_head, 0));
	CHECK(pool->length <= pool->capacity);
}

/*
 * Whether the head is set before candidates come, or shortened while they do: what
 * is behind it matches, nothing that is left is nearer than the head, and nothing
 * is lost.
 */
static void
PoolKeepsMatchingBehindItsHead(void)
{
	uint64		random = 14;

	for (int run = 0; run < POOL_RUNS; run++)
	{
		PipeannPool pool;
		PipeannCandidate items[32];
		int			head = 5 + UnitRandom(&random) % 60;
		int			matching = 1 + UnitRandom(&random) % 40;
		uint32		next = 0;
		int			explored = 0;

		PoolInit(&pool, head);
		PoolSetHead(&pool, head, matching);
		for (int round = 0; round < 30; round++)
		{
			PipeannPoolMerge(&pool, items, SomeCandidates(&random, &pool, &next,
												   items));
			CheckHead(&pool, head, matching);
			if (UnitRandom(&random) % 4 == 0 && head > 3)
			{
				head -= UnitRandom(&random) % 3;
				PoolSetHead(&pool, head, matching);
				CheckHead(&pool, head, matching);
			}
		}
		for (int i = 0; i < pool.count; i++)
			explored += pool.items[i].explored;
		CHECK(explored == 0);
		CHECK(pool.count + pool.ndiscards == next);
		CHECK(pool.count >= Min(head, (int) next));
		for (uint64 i = 0; i < pool.ndiscards; i++)
			CHECK(pool.discards[i].dist >= pool.items[head - 1].dist);
	}
}

/* The nearest wanted come to the front, all are still there, ties and all. */
static void
SelectsTheNearest(void)
{
	uint64		random = 15;

	for (int run = 0; run < POOL_RUNS; run++)
	{
		PipeannDiscard items[MAX_CANDIDATES];
		bool		seen[MAX_CANDIDATES] = {false};
		uint64		n = 1 + UnitRandom(&random) % (run < 50 ? 8 : MAX_CANDIDATES);
		uint64		wanted = 1 + UnitRandom(&random) % n;
		PipeannDiscard last;
		bool		present = false;

		for (uint64 i = 0; i < n; i++)
		{
			items[i].id = (uint32) i;
			items[i].dist = run % 3 == 0 ? 1 : UnitFewDistances(&random);
		}
		last = SelectNearest(items, n, wanted);
		for (uint64 i = 0; i < n; i++)
		{
			CHECK(!seen[items[i].id]);
			seen[items[i].id] = true;
			if (i < wanted)
			{
				CHECK(!IsNearer(&last, &items[i]));
				present |= items[i].id == last.id;
			}
			else
				CHECK(IsNearer(&last, &items[i]));
		}
		CHECK(present);
	}
}

/*
 * The tenth nearest and the errors given, whatever their order, make the bound.
 */
static void
EndsEarlyByFactorAndError(void)
{
	const PipeannMetric metrics[] = {PIPEANN_L2, PIPEANN_COSINE, PIPEANN_L1};
	const float factors[] = {0.06645f, 0.06645f, 0.03269f};
	PipeannTermination product;

	PipeannTerminationInit(&product, PIPEANN_IP, 60);
	CHECK(!product.on);
	for (int m = 0; m < 3; m++)
		for (int scale = 0; scale <= 100; scale += 100)
		{
			PipeannTermination termination;
			float		tenth = metrics[m] != PIPEANN_COSINE ? 109 : -0.91f;
			double		deviation = scale * sqrt((20 * 20 - 1) / 12.0);
			double		margin;

			PipeannTerminationInit(&termination, metrics[m], 60);
			for (int i = 0; i < 50; i++)
			{
				int			k = i * 7 % 50;

				CHECK(TerminationBound(&termination) == INFINITY);
				PipeannTerminationFound(&termination,
										metrics[m] != PIPEANN_COSINE ?
										100 + k : -1 + k * 0.01f, i);
			}
			for (int i = 0; i < 20; i++)
				PipeannSampleAdd(&termination.errors, scale * (i - 9.5f));
			margin = Max(deviation * 2.1930,
						 factors[m] * (metrics[m] != PIPEANN_COSINE ? 109 : 1 - 0.91));
			CHECK_CLOSE(TerminationBound(&termination), tenth + margin,
						1e-3 * (1 + margin));
			CHECK(PipeannTerminationWantsError(&termination, false));
			termination.on = false;
			CHECK(TerminationBound(&termination) == INFINITY);
			CHECK(!PipeannTerminationWantsError(&termination, false));
		}
}

int
main(void)
{
	UNIT_RUN(PoolKeepsTheNearest);
	UNIT_RUN(PoolKnowsItsFirstOnes);
	UNIT_RUN(PoolRefillsFromWhatFellOut);
	UNIT_RUN(PoolRefillsFromItself);
	UNIT_RUN(PoolOfOne);
	UNIT_RUN(PoolTakesAnyDistance);
	UNIT_RUN(PoolMergesAsItInserts);
	UNIT_RUN(PoolCountsItsBeams);
	UNIT_RUN(PoolWidens);
	UNIT_RUN(PoolIsOpenUpToItsBound);
	UNIT_RUN(PoolKeepsMatchingBehindItsHead);
	UNIT_RUN(SelectsTheNearest);
	UNIT_RUN(EndsEarlyByFactorAndError);
	return UnitDone();
}
