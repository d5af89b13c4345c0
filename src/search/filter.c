/*
 * filter.c
 *		Going through attribute codes for those that pass a filter.
 */
#include "search/filter.h"

#include "distance/distance.h"

/* A sample is so many runs of 64 codes. */
#define SAMPLE_RUNS 64

static int
LowestBit(uint64 word)
{
	return __builtin_ctzll(word);
}

/* Take out those whose second bytes do not pass. */
static void
CheckSecond(const PipeannCodes *codes, const PipeannCodeFilter *filter,
			uint32 first, uint64 *word)
{
	for (uint64 left = *word; left != 0; left &= left - 1)
	{
		int			bit = LowestBit(left);

		if (!PipeannCodePasses(codes, filter, first + bit))
			*word &= ~((uint64) 1 << bit);
	}
}

static bool
HasSecond(const PipeannCodeFilter *filter)
{
	for (int i = 0; i < filter->n; i++)
		if (filter->columns[i].second != NULL)
			return true;
	return false;
}

/* n is a multiple of 64, and all of it in one block. */
static void
Passing(const PipeannCodes *codes, const PipeannCodeFilter *filter,
		uint32 first, int n, uint64 *mask)
{
	memset(mask, 0xFF, n / 8);
	for (int i = 0; i < filter->n; i++)
		PipeannKernel->keep_members(PipeannAttributeAt(codes, first,
													   filter->columns[i].plane),
									n, filter->columns[i].first, mask);
	for (int i = 0; i < n / 64; i++)
	{
		uint32		from = first + i * 64;

		if (from >= codes->ncodes)
			mask[i] = 0;
		else if (codes->ncodes - from < 64)
			mask[i] &= ((uint64) 1 << (codes->ncodes - from)) - 1;
		if (HasSecond(filter))
			CheckSecond(codes, filter, from, &mask[i]);
	}
}

void
PipeannBlockPassing(const PipeannCodes *codes, const PipeannCodeFilter *filter,
					uint32 first, uint64 *mask)
{
	Passing(codes, filter, first, PIPEANN_CODE_BLOCK, mask);
}

double
PipeannSharePassing(const PipeannCodes *codes, const PipeannCodeFilter *filter)
{
	uint32		words = (codes->ncodes + 63) / 64;
	uint32		runs = Min(words, SAMPLE_RUNS);
	uint32		passing = 0;

	for (uint32 i = 0; i < runs; i++)
	{
		uint64		mask;

		Passing(codes, filter, (uint32) ((uint64) i * words / runs) * 64, 64,
				&mask);
		passing += __builtin_popcountll(mask);
	}
	return runs == 0 ? 0 : (double) passing / Min(codes->ncodes, runs * 64);
}
