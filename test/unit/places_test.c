/*
 * places_test.c
 *		Stripes and extents: each page has a block of its own, and keeps it.
 */
#include "unit.h"

#include "storage/slot.h"

/* The contents of a page of 1, 8 and 32 kB, and the blocks of half a megabyte. */
static const struct
{
	uint32		bytes;
	uint32		blocks;
}			sizes[] = {{992, 512}, {8160, 64}, {32736, 16}};

/* Bytes of a slot and of codes: narrow vectors to those of 16,000 dimensions. */
static const struct
{
	uint32		slot;
	uint16		pq_bytes;
	uint8		attr_bytes;
}			shapes[] = {
	{76, 1, 0}, {170, 3, 0}, {380, 64, 0}, {380, 32, 2}, {160, 150, 64},
	{980, 96, 0}, {2700, 96, 8}, {3900, 192, 0}, {6500, 192, 0},
	{16400, 250, 0}, {32300, 512, 0}, {64300, 900, 0}
};

static PipeannLayout
MakeLayout(int size, int shape)
{
	PipeannLayout l = {
		.pq_bytes = shapes[shape].pq_bytes,.attr_bytes = shapes[shape].attr_bytes,
		.node_pages = 1,.slots_per_page = 1
	};

	if (shapes[shape].slot > sizes[size].bytes)
		l.node_pages = (shapes[shape].slot + sizes[size].bytes - 1) / sizes[size].bytes;
	else
		l.slots_per_page = sizes[size].bytes / shapes[shape].slot;
	PipeannStripesInit(&l, sizes[size].bytes, sizes[size].blocks);
	return l;
}

#define FOR_LAYOUTS(l) \
	for (int size = 0; size < (int) lengthof(sizes); size++) \
		for (int shape = 0; shape < (int) lengthof(shapes); shape++) \
			for (PipeannLayout l = MakeLayout(size, shape), *once = &l; once != NULL; once = NULL)

/* Codes fit their pages, and a file without holes is hardly larger than its contents. */
static void
TestStripes(void)
{
	FOR_LAYOUTS(l)
	{
		uint32		code = l.pq_bytes + l.attr_bytes;
		double		ideal = (double) l.node_pages / l.slots_per_page +
			(double) code / sizes[size].bytes;
		double		blocks = (double) PipeannStripeLength(&l) /
			(l.stripe_pages * l.slots_per_page);

		CHECK(PipeannStripeLength(&l) <= sizes[size].blocks);
		CHECK(l.codes_per_page * code <= sizes[size].bytes);
		CHECK(l.codes_per_page * l.stripe_codes >= (uint32) l.stripe_pages * l.slots_per_page);
		if (sizes[size].bytes == 8160 && !CHECK(blocks <= 1.02 * ideal))
			NOTE("slot %u, codes %u: %.3f", shapes[shape].slot, code, blocks / ideal);
	}
}

#define MOST_BLOCKS 8000

static uint8 used[MOST_BLOCKS];

static bool
Take(BlockNumber block, uint32 blocks, BlockNumber end)
{
	bool		free = block > 0 && block + blocks <= end && end <= MOST_BLOCKS;

	for (uint32 i = 0; free && i < blocks; i++)
		free = used[block + i]++ == 0;
	return free;
}

/* Mark the blocks of all that an index has; false if two want one, or one is beyond the end. */
static bool
TakeAll(const PipeannExtents *extents, const PipeannLayout *l, uint32 pages)
{
	BlockNumber end = (BlockNumber) PipeannBlocksInUse(extents, l, pages, true);
	uint32		codes = PipeannCodePages(l, pages * l->slots_per_page);
	bool		good = true;

	memset(used, 0, sizeof(used));
	for (int i = 0; i < PIPEANN_EXTENTS; i++)
		good &= Take(extents->first[i], extents->length[i], end) || extents->length[i] == 0;
	for (uint32 i = 0; i < pages; i++)
	{
		BlockNumber block = PipeannGraphBlock(extents, l, i);

		good &= Take(block, l->node_pages, end) && PipeannPageAt(extents, l, block) == i;
		for (uint32 j = 1; j < l->node_pages; j++)
			good &= PipeannPageAt(extents, l, block + j) == PIPEANN_INVALID_ID;
	}
	for (uint32 i = 0; i < codes; i++)
	{
		BlockNumber block = PipeannCodeBlock(extents, l, i);

		good &= Take(block, 1, end) && PipeannPageAt(extents, l, block) == PIPEANN_INVALID_ID;
	}
	for (int i = 0; i < PIPEANN_EXTENTS; i++)
		for (uint32 j = 0; j < extents->length[i]; j++)
			good &= PipeannPageAt(extents, l, extents->first[i] + j) == PIPEANN_INVALID_ID;
	return good && used[end - 1] == 1;
}

static uint32
BlocksHash(const PipeannExtents *extents, const PipeannLayout *l, uint32 pages)
{
	uint32		hash = 0;

	for (uint32 i = 0; i < pages; i++)
		hash = hash * 31 + PipeannGraphBlock(extents, l, i);
	for (uint32 i = 0; i < PipeannCodePages(l, pages * l->slots_per_page); i++)
		hash = hash * 31 + PipeannCodeBlock(extents, l, i);
	return hash;
}

/*
 * An index of these many pages gets an extent, grows, gets the next one: no page that there is
 * moves, and nothing overlaps.
 */
static void
GrowWith(const PipeannLayout *l, bool built, const uint32 *pages)
{
	PipeannExtents extents = {.current = 0};
	uint32		length = 5;

	if (built)
		PipeannExtentChoose(&extents, 1, 0, length);
	for (int i = built; i < PIPEANN_EXTENTS; i++)
	{
		uint32		before = BlocksHash(&extents, l, pages[i]);

		CHECK(TakeAll(&extents, l, pages[i]));
		length += 7;
		PipeannExtentChoose(&extents, (BlockNumber) PipeannBlocksInUse(&extents, l, pages[i], true),
							length, length);
		CHECK(extents.current == (uint32) i && PipeannExtentBlock(&extents) == extents.first[i]);
		CHECK(BlocksHash(&extents, l, pages[i]) == before);
		CHECK(TakeAll(&extents, l, pages[i]) && TakeAll(&extents, l, pages[i] + 1));
	}
	CHECK(TakeAll(&extents, l, pages[PIPEANN_EXTENTS]));
	CHECK(PipeannExtentRoom(&extents) == length);
	PipeannExtentChoose(&extents, 0, 6, 6);
	CHECK(extents.length[extents.current] >= 6 && extents.current == (built ? 1 : 0));
}

static void
TestRuns(void)
{
	FOR_LAYOUTS(l)
	{
		uint32		stripe = l.stripe_pages;
		const uint32 many[] = {stripe, 2 * stripe - 1, 2 * stripe + 1, 4 * stripe};
		const uint32 few[] = {1, 2, stripe / 2 + 2, stripe + 1};

		GrowWith(&l, true, many);
		GrowWith(&l, false, many);
		GrowWith(&l, true, few);
		GrowWith(&l, false, few);
	}
}

/* Without codes a small index has its graph pages and no more. */
static void
TestSmall(void)
{
	FOR_LAYOUTS(l)
	{
		PipeannExtents extents = {.current = 0};

		CHECK(PipeannBlocksInUse(&extents, &l, 0, false) == 1);
		CHECK(PipeannBlocksInUse(&extents, &l, 1, false) == 1U + l.node_pages);
		CHECK(PipeannBlocksInUse(&extents, &l, l.stripe_pages, false) ==
			  1U + l.stripe_pages * l.node_pages);
		CHECK(PipeannBlocksInUse(&extents, &l, PG_UINT32_MAX / l.slots_per_page, true) <=
			  (uint64) PG_UINT32_MAX * l.node_pages * 2);
	}
}

int
main(void)
{
	UNIT_RUN(TestStripes);
	UNIT_RUN(TestRuns);
	UNIT_RUN(TestSmall);
	return UnitDone();
}
