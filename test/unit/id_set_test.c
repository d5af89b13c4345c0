/*
 * id_set_test.c
 *		Sets of ids.
 */
#include "unit.h"

#include "base/id_set.h"

static void
IdSetIsASet(void)
{
	uint64		random = 5;
	static bool member[1 << 16];
	PipeannIdSet set;
	uint32		used = 0;

	memset(member, 0, sizeof(member));
	PipeannIdSetInit(&set, 16, false);
	for (int i = 0; i < 100000; i++)
	{
		uint32		key = UnitRandom(&random) % (1 << 16);

		CHECK(PipeannIdSetHas(&set, key) == member[key]);
		CHECK(PipeannIdSetAdd(&set, key) == !member[key]);
		if (!member[key])
			used++;
		member[key] = true;
		CHECK(set.used == used);
	}
	for (uint32 key = 0; key < 1 << 16; key++)
		CHECK(PipeannIdSetHas(&set, key) == member[key]);
	CHECK(set.used * 2 <= set.mask + 1);
}

/*
 * Keys that are alike: a run, the ends of the range, multiples.
 */
static void
IdSetTakesAnyKeys(void)
{
	PipeannIdSet set;

	PipeannIdSetInit(&set, 16, false);
	for (uint32 i = 0; i < 5000; i++)
	{
		CHECK(PipeannIdSetAdd(&set, i));
		CHECK(PipeannIdSetAdd(&set, PIPEANN_INVALID_ID - 1 - i));
		CHECK(PipeannIdSetAdd(&set, 0x40000000 + i * 65536));
	}
	for (uint32 i = 0; i < 5000; i++)
	{
		CHECK(!PipeannIdSetAdd(&set, i));
		CHECK(PipeannIdSetHas(&set, PIPEANN_INVALID_ID - 1 - i));
		CHECK(!PipeannIdSetHas(&set, 100000 + i));
	}
	CHECK(set.used == 15000);
}

static void
IdSetHoldsValues(void)
{
	uint64		random = 6;
	static uint32 value[10000];
	static bool known[10000];
	PipeannIdSet set;

	memset(known, 0, sizeof(known));
	PipeannIdSetInit(&set, 32, true);
	for (int i = 0; i < 50000; i++)
	{
		uint32		key = UnitRandom(&random) % 10000;
		uint32		got = 0;

		CHECK(PipeannIdSetGet(&set, key, &got) == known[key]);
		if (known[key])
			CHECK(got == value[key]);
		value[key] = (uint32) UnitRandom(&random);
		known[key] = true;
		PipeannIdSetPut(&set, key, value[key]);
	}
}

int
main(void)
{
	UNIT_RUN(IdSetIsASet);
	UNIT_RUN(IdSetTakesAnyKeys);
	UNIT_RUN(IdSetHoldsValues);
	return UnitDone();
}
