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
	PipeannIdSet set = {0};
	uint32		used = 0;

	memset(member, 0, sizeof(member));
	PipeannIdSetReset(&set, 16, false);
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
	PipeannIdSet set = {0};

	PipeannIdSetReset(&set, 16, false);
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
	PipeannIdSet set = {0};

	memset(known, 0, sizeof(known));
	PipeannIdSetReset(&set, 32, true);
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

/* Slots between where a set's keys are looked for first and where they are. */
static double
MeanDistance(const PipeannIdSet *set)
{
	uint64		sum = 0;

	for (uint32 i = 0; i <= set->mask; i++)
		if (set->keys[i] != PIPEANN_INVALID_ID)
			sum += (i - PipeannIdSetHome(set, set->keys[i])) & set->mask;
	return (double) sum / set->used;
}

/*
 * Keys are found after a few looks, also where they are alike, whatever the size of
 * the set and the distance from key to key.
 */
static void
IdSetFindsKeysSoon(void)
{
	for (uint32 n = 500; n <= 60000; n *= 2)
		for (uint32 step = 1; step <= UINT32_MAX / n; step *= 2)
			for (uint32 factor = 1; factor <= 5; factor += 2)
			{
				PipeannIdSet set = {0};

				PipeannIdSetReset(&set, 16, false);
				for (uint32 i = 0; i < n; i++)
					PipeannIdSetAdd(&set, i * step * factor);
				if (!CHECK(MeanDistance(&set) < 16))
					NOTE("%u keys, each %u from the next: %.1f slots away",
						 n, step * factor, MeanDistance(&set));
				free(set.keys);
			}
}

/*
 * All of a set of any size is used. (No memory is needed to see where keys are
 * looked for first.)
 */
static void
IdSetUsesAllOfItself(void)
{
	for (int bits = 4; bits < 32; bits++)
	{
		PipeannIdSet set = {.mask = (1U << bits) - 1, .shift = 64 - bits};
		uint32		parts[16] = {0};

		for (uint32 i = 0; i < 160000; i++)
			parts[PipeannIdSetHome(&set, i) >> (bits - 4)]++;
		for (int i = 0; i < 16; i++)
			CHECK(parts[i] > 9000 && parts[i] < 11000);
	}
}

int
main(void)
{
	UNIT_RUN(IdSetIsASet);
	UNIT_RUN(IdSetTakesAnyKeys);
	UNIT_RUN(IdSetHoldsValues);
	UNIT_RUN(IdSetFindsKeysSoon);
	UNIT_RUN(IdSetUsesAllOfItself);
	return UnitDone();
}
