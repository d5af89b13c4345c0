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

static void
AddMember(uint8 *set, uint32 byte)
{
	set[byte / 8] |= 1 << byte % 8;
}

void
PipeannCodeColumnFill(PipeannCodeColumn *column)
{
	memset(column->first, 0, sizeof(column->first));
	memset(column->full, 0, sizeof(column->full));
	column->npartial = 0;
	for (uint32 byte = 0; byte < 256; byte++)
	{
		const uint8 *row = column->second + (Size) byte * 32;
		uint8		any = 0;
		uint8		all = 0xFF;

		for (int i = 0; i < 32; i++)
		{
			any |= row[i];
			all &= row[i];
		}
		if (any == 0)
			continue;
		AddMember(column->first, byte);
		if (all == 0xFF)
			AddMember(column->full, byte);
		else if (column->npartial == PIPEANN_MOST_PARTIAL)
			column->npartial = -1;
		else if (column->npartial >= 0)
			column->partial[column->npartial++] = (uint8) byte;
	}
}

/* Whether second bytes have to be looked at one by one. */
static bool
HasManyRows(const PipeannCodeFilter *filter)
{
	for (int i = 0; i < filter->n; i++)
		if (filter->columns[i].npartial < 0)
			return true;
	return false;
}

/* Take out those that a column of two bytes does not let pass. */
static void
KeepWide(const PipeannCodes *codes, const PipeannCodeColumn *column,
		 uint32 first, int n, uint64 *mask)
{
	const uint8 *bytes = PipeannAttributeAt(codes, first, column->plane);
	const uint8 *seconds = PipeannAttributeAt(codes, first, column->plane + 1);
	uint64		any[PIPEANN_BLOCK_WORDS];
	uint64		with[PIPEANN_BLOCK_WORDS];

	memset(any, 0xFF, n / 8);
	PipeannKernel->keep_members(bytes, n, column->full, any);
	for (int i = 0; i < column->npartial; i++)
	{
		uint8		only[32] = {0};

		AddMember(only, column->partial[i]);
		memset(with, 0xFF, n / 8);
		PipeannKernel->keep_members(bytes, n, only, with);
		PipeannKernel->keep_members(seconds, n, column->second +
									(Size) column->partial[i] * 32, with);
		for (int j = 0; j < n / 64; j++)
			any[j] |= with[j];
	}
	for (int j = 0; j < n / 64; j++)
		mask[j] &= any[j];
}

/* n is a multiple of 64, and all of it in one block. */
static void
Passing(const PipeannCodes *codes, const PipeannCodeFilter *filter,
		uint32 first, int n, uint64 *mask)
{
	bool		one_by_one = HasManyRows(filter);

	memset(mask, 0xFF, n / 8);
	for (int i = 0; i < filter->n; i++)
	{
		const PipeannCodeColumn *column = &filter->columns[i];

		if (column->second != NULL && column->npartial >= 0)
			KeepWide(codes, column, first, n, mask);
		else
			PipeannKernel->keep_members(PipeannAttributeAt(codes, first,
														   column->plane),
										n, column->first, mask);
	}
	for (int i = 0; i < n / 64; i++)
	{
		uint32		from = first + i * 64;

		if (from >= codes->ncodes)
			mask[i] = 0;
		else if (codes->ncodes - from < 64)
			mask[i] &= ((uint64) 1 << (codes->ncodes - from)) - 1;
		if (one_by_one)
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
