/*
 * filter.c
 *		Going through attribute codes for those that pass a filter.
 */
#include "pq/codes.h"

#include "distance/distance.h"

/* A sample is this many blocks of 64 codes; fewer where each may have to be read. */
#define SAMPLE_WORDS 64
#define SAMPLE_WORDS_READ 16

/* Bytes that are prefetched: then the CPU's own prefetching continues. */
#define PREFETCHED (4 * PIPEANN_CACHE_LINE)

/* Clear the bits of codes whose second bytes do not pass. */
static void
CheckSecond(const PipeannCodes *codes, const PipeannCodeFilter *filter,
			uint32 first, uint64 *word)
{
	for (uint64 left = *word; left != 0; left &= left - 1)
	{
		int			bit = __builtin_ctzll(left);

		if (!PipeannCodePasses(codes, filter, first + bit))
			*word &= ~((uint64) 1 << bit);
	}
}

/* Note which second bytes pass with a first byte. */
static void
AddRow(PipeannCodeColumn *column, uint32 byte, const uint8 *second)
{
	int			at = 0;

	if (column->nrows < 0)
		return;
	while (at < column->nrows &&
		   memcmp(column->rows[at].second, second, 32) != 0)
		at++;
	if (at == PIPEANN_MOST_ROWS)
	{
		column->nrows = -1;
		return;
	}
	if (at == column->nrows)
	{
		memset(&column->rows[at], 0, sizeof(PipeannCodeRow));
		column->rows[at].second = second;
		column->nrows++;
	}
	PipeannSetBit(column->rows[at].first, byte);
}

/* Set first, nrows and rows of a column of two bytes from `second`. */
void
PipeannCodeColumnFill(PipeannCodeColumn *column)
{
	memset(column->first, 0, sizeof(column->first));
	column->nrows = 0;
	for (uint32 byte = 0; byte < 256; byte++)
	{
		const uint8 *second = column->second + (Size) byte * 32;

		if (memcmp(second, (uint8[32]) {0}, 32) == 0)
			continue;
		PipeannSetBit(column->first, byte);
		AddRow(column, byte, second);
	}
}

/* Whether second bytes have to be checked one by one. */
static bool
HasManyRows(const PipeannCodeFilter *filter)
{
	for (int i = 0; i < filter->n; i++)
		if (filter->columns[i].nrows < 0)
			return true;
	return false;
}

/* Whether second bytes decide: some codes are left, and not every second byte passes. */
static bool
DoSecondsDecide(const uint8 *second, int n, const uint64 *mask)
{
	static const uint8 full[32] = {[0 ... 31] = 0xFF};
	uint64		any = 0;

	for (int i = 0; i < n / 64; i++)
		any |= mask[i];
	return any != 0 && memcmp(second, full, sizeof(full)) != 0;
}

/* Clear the bits of codes that do not pass a column, but for what CheckSecond() clears. */
static void
Keep(const PipeannCodes *codes, const PipeannCodeColumn *column, uint32 first,
	 int n, uint64 *mask)
{
	const uint8 *bytes = PipeannAttributeAt(codes, first, column->plane);

	if (column->width == 2 && column->second == NULL)
		PipeannKernel->keep_range(bytes,
								  PipeannAttributeAt(codes, first,
													 column->plane + 1),
								  n, column->from, column->to, mask);
	else if (column->second != NULL && column->nrows >= 0)
	{
		const uint8 *seconds = PipeannAttributeAt(codes, first, column->plane + 1);
		uint64		any[PIPEANN_BLOCK_WORDS] = {0};
		uint64		with[PIPEANN_BLOCK_WORDS];

		/* a column of two bytes: the first bytes of a row share its second bytes */
		for (int i = 0; i < column->nrows; i++)
		{
			memset(with, 0xFF, n / 8);
			PipeannKernel->keep_members(bytes, n, column->rows[i].first, with);
			if (DoSecondsDecide(column->rows[i].second, n, with))
				PipeannKernel->keep_members(seconds, n, column->rows[i].second,
											with);
			for (int j = 0; j < n / 64; j++)
				any[j] |= with[j];
		}
		for (int j = 0; j < n / 64; j++)
			mask[j] &= any[j];
	}
	else
		PipeannKernel->keep_members(bytes, n, column->first, mask);
}

/*
 * Clear the bits of codes that pass none of the alternatives, the first of which
 * begins with `column`. Returns the last column of the last one.
 */
static const PipeannCodeColumn *
KeepAny(const PipeannCodes *codes, const PipeannCodeColumn *column,
		uint32 first, int n, uint64 *mask)
{
	uint64		any[PIPEANN_BLOCK_WORDS] = {0};

	for (;; column++)
	{
		uint64		with[PIPEANN_BLOCK_WORDS];

		memset(with, 0xFF, n / 8);
		for (Keep(codes, column, first, n, with); column->also;)
			Keep(codes, ++column, first, n, with);
		for (int i = 0; i < n / 64; i++)
			any[i] |= with[i];
		if (!column->otherwise)
			break;
	}
	for (int i = 0; i < n / 64; i++)
		mask[i] &= any[i];
	return column;
}

/* Clear the bits from number `end` on. */
static void
LeaveOutBehind(uint64 *mask, int n, uint32 end)
{
	mask[end / 64] &= ((uint64) 1 << end % 64) - 1;
	for (uint32 i = end / 64 + 1; i < (uint32) n / 64; i++)
		mask[i] = 0;
}

/* Attempts at a block whose codes are overwritten meanwhile. */
#define TRIES 10

/* Set the bits of codes that pass; of all n if they were overwritten at every attempt. */
void
PipeannPassing(const PipeannCodes *codes, const PipeannCodeFilter *filter,
			   uint32 first, int n, uint64 *mask)
{
	if (codes->loader != NULL &&
		(n < (int) PIPEANN_CODE_BLOCK || !codes->loader->has_block(codes->loader, first)))
	{
		/* one by one, so that no more are loaded than are checked */
		memset(mask, 0, n / 8);
		for (uint32 i = 0; i < Min((uint32) n, codes->ncodes - first); i++)
			if (PipeannCodePasses(codes, filter, first + i))
				mask[i / 64] |= (uint64) 1 << i % 64;
		return;
	}
	for (int tries = 0; tries < TRIES; tries++)
	{
		uint32		begun = PipeannStoresBegun(codes);

		memset(mask, 0xFF, n / 8);
		for (const PipeannCodeColumn *column = filter->columns;
			 column < filter->columns + filter->n; column++)
		{
			if (column->also || column->otherwise)
				column = KeepAny(codes, column, first, n, mask);
			else
				Keep(codes, column, first, n, mask);
		}
		if (codes->ncodes - first < (uint32) n)
			LeaveOutBehind(mask, n, codes->ncodes - first);
		if (HasManyRows(filter))
			for (int i = 0; i < n / 64; i++)
				CheckSecond(codes, filter, first + i * 64, &mask[i]);
		if (!PipeannAreTorn(codes, begun))
			return;
	}
	memset(mask, 0xFF, n / 8);
	if (codes->ncodes - first < (uint32) n)
		LeaveOutBehind(mask, n, codes->ncodes - first);
}

/*
 * Prefetch what will be read of a block, if there is one: from memory, or by
 * the loader.
 *
 * Each byte of the codes of a block is stored apart.
 */
void
PipeannPrefetchBlock(const PipeannCodes *codes, const PipeannCodeFilter *filter,
					 uint32 first)
{
	if (first >= codes->ncodes)
		return;
	if (codes->loader != NULL)
	{
		codes->loader->prefetch(codes->loader, first,
								Min(PIPEANN_CODE_BLOCK, codes->ncodes - first));
		return;
	}
	for (int i = 0; i < filter->n; i++)
	{
		const PipeannCodeColumn *column = &filter->columns[i];

		for (int j = 0; j < column->width; j++)
		{
			const uint8 *bytes = PipeannAttributeAt(codes, first,
													column->plane + j);

			for (uint32 at = 0; at < PREFETCHED; at += PIPEANN_CACHE_LINE)
				__builtin_prefetch(bytes + at);
		}
	}
}

/* The share of nodes that pass, by a sample. */
double
PipeannSharePassing(const PipeannCodes *codes, const PipeannCodeFilter *filter)
{
	uint32		words = (codes->ncodes + 63) / 64;
	uint32		n = Min(words, codes->loader == NULL ? SAMPLE_WORDS : SAMPLE_WORDS_READ);
	uint32		passing = 0;

	for (uint32 i = 0; i < n; i++)
	{
		uint64		mask;

		PipeannPassing(codes, filter,
					   (uint32) ((uint64) i * words / n) * 64, 64, &mask);
		passing += __builtin_popcountll(mask);
	}
	return n == 0 ? 0 : (double) passing / Min(codes->ncodes, n * 64);
}
