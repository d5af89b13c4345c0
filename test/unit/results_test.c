/*
 * results_test.c
 *		Results, nearest first.
 */
#include "unit.h"

#include "search/state.h"

static void
AddResult(PipeannResults *results, uint32 id, float dist, int ntids)
{
	ItemPointerData tids[8];
	PipeannRowList rows = {
		.rows = (PipeannRow *) tids,.n = ntids,
		.bytes = ntids * sizeof(ItemPointerData)
	};
	PipeannResult result = {0};

	memset(tids, 0, sizeof(tids));
	for (int i = 0; i < ntids; i++)
	{
		tids[i].bi_lo = id;
		tids[i].ip_posid = i + 1;
	}
	result.id = id;
	result.dist = dist;
	result.ext_tids = PIPEANN_INVALID_ID;
	PipeannResultsAdd(results, &result, &rows);
}

static bool
HasItsTids(const PipeannSearch *search, const PipeannResult *result)
{
	PipeannRowList rows = PipeannSearchRows(search, result);

	for (uint32 i = 0; i < rows.n; i++)
	{
		const ItemPointerData *tid = (const ItemPointerData *) rows.rows + i;

		if (tid->bi_lo != (uint16) result->id || tid->ip_posid != i + 1)
			return false;
	}
	return true;
}

static void
ResultsComeInOrder(void)
{
	uint64		random = 7;
	static bool seen[5000];
	PipeannSearch search;
	const PipeannResult *result;
	float		last = -1;
	uint32		last_id = 0;
	int			n = 0;

	memset(seen, 0, sizeof(seen));
	memset(&search, 0, sizeof(search));
	PipeannResultsReset(&search.results);
	CHECK(PipeannSearchPeek(&search) == NULL);
	CHECK(PipeannSearchPop(&search) == NULL);
	for (uint32 id = 0; id < 5000; id++)
		AddResult(&search.results, id, UnitFewDistances(&random),
				  UnitRandom(&random) % 5);
	while ((result = PipeannSearchPeek(&search)) != NULL)
	{
		uint32		id = result->id;

		result = PipeannSearchPop(&search);
		CHECK(result->id == id);
		CHECK(result->dist > last || (result->dist == last && id > last_id));
		CHECK(!seen[id]);
		CHECK(HasItsTids(&search, result));
		seen[id] = true;
		last = result->dist;
		last_id = id;
		n++;
	}
	CHECK(n == 5000);
	CHECK(PipeannSearchPop(&search) == NULL);
}

/*
 * What comes next is what is taken then, however many are asked for, and asking
 * takes none.
 */
static void
ResultsTellWhatComesNext(void)
{
	uint64		random = 9;

	for (int count = 0; count <= 200; count += 1 + count / 3)
		for (int n = 0; n <= 220; n += 1 + n / 2)
		{
			const PipeannResult *next[220];
			uint32		ids[220];
			PipeannSearch search;
			int			found;

			memset(&search, 0, sizeof(search));
			PipeannResultsReset(&search.results);
			for (int id = 0; id < count; id++)
				AddResult(&search.results, id, UnitFewDistances(&random), 1);
			found = PipeannSearchNext(&search, next, n);
			CHECK(found == Min(count, n));
			for (int i = 0; i < found; i++)
				ids[i] = next[i]->id;
			for (int i = 0; i < found; i++)
				CHECK(PipeannSearchPop(&search)->id == ids[i]);
			found = PipeannSearchNext(&search, next, n);
			CHECK(found == Max(Min(count - n, n), 0));
		}
}

/*
 * Results that come after the first were taken: each one taken is the nearest
 * of those there. Compared with a plain list.
 */
static void
ResultsMayComeLater(void)
{
	uint64		random = 8;
	static float dist[3000];
	static bool there[3000];
	PipeannSearch search;
	uint32		added = 0;
	int			taken = 0;

	memset(there, 0, sizeof(there));
	memset(&search, 0, sizeof(search));
	PipeannResultsReset(&search.results);
	for (int step = 0; step < 5000; step++)
	{
		const PipeannResult *result;
		uint32		nearest = PIPEANN_INVALID_ID;

		if (added < 3000 && UnitRandom(&random) % 3 > 0)
		{
			dist[added] = UnitFewDistances(&random);
			there[added] = true;
			AddResult(&search.results, added, dist[added], 2);
			added++;
			continue;
		}
		for (uint32 i = 0; i < added; i++)
			if (there[i] && (nearest == PIPEANN_INVALID_ID ||
							 dist[i] < dist[nearest]))
				nearest = i;
		result = PipeannSearchPop(&search);
		CHECK((result == NULL) == (nearest == PIPEANN_INVALID_ID));
		if (result == NULL)
			continue;
		CHECK(result->id == nearest);
		CHECK(HasItsTids(&search, result));
		there[nearest] = false;
		taken++;
	}
	CHECK(taken > 1000);
	CHECK(search.results.count == added - taken);
}

/*
 * Rows with values of a slot of which anything may have been overwritten: none
 * reaches beyond the slot, and none is shorter than what is looked at.
 */
static void
RowsOfBrokenSlotsStayInside(void)
{
	PipeannLayout l = {.row_bytes = 40,.tids_offset = 0,.vector_offset = 120};
	uint64		random = 10;
	int			cut = 0;

	for (int round = 0; round < 20000; round++)
	{
		uint16		area[60];
		PipeannRowList list;
		const PipeannRow *row;
		uint32		n = UnitRandom(&random) % 12;
		uint32		bytes = 0;

		for (int i = 0; i < 60; i++)
			area[i] = (uint16) (UnitRandom(&random) %
								(round % 2 == 0 ? 65536 : 24));
		list = PipeannRowsOf(&l, area, PipeannInlineBytes(&l), n);
		CHECK(list.n <= n && list.bytes <= sizeof(area));
		row = list.rows;
		for (uint32 i = 0; i < list.n; i++, row = PipeannRowNext(&l, row))
		{
			uint32		size = PipeannRowSize(&l, row);

			CHECK(size % 2 == 0 && size >= sizeof(PipeannRow));
			CHECK(!PipeannRowIsOutOfLine(&l, row) ||
				  size >= sizeof(PipeannRowOutOfLine));
			bytes += size;
		}
		CHECK(bytes == list.bytes);
		cut += list.n < n;
	}
	CHECK(cut > 0 && cut < 20000);
}

int
main(void)
{
	UNIT_RUN(ResultsComeInOrder);
	UNIT_RUN(ResultsTellWhatComesNext);
	UNIT_RUN(ResultsMayComeLater);
	UNIT_RUN(RowsOfBrokenSlotsStayInside);
	return UnitDone();
}
