/*
 * numbers.c
 *		Which values a node has whose rows differ, in the bytes behind an ordered code.
 *
 * They are a Bloom filter of the numbers of values. It is there in nodes with one value
 * as well: a reader who sees that a node has come to mean any value, and not the
 * filter's change, lacks what a row has that it does not see anyway.
 */
#include "postgres.h"

#include "attributes/coding.h"

/* Bits of a number. */
#define HASHES 4

/* Numbers of a condition that are looked for. */
#define MOST_NUMBERS 8

void
PipeannNumberBits(const PipeannAttribute *attribute, uint32 number, uint8 *set)
{
	uint32		bits = 8 * (uint32) PipeannSetBytes(attribute);
	uint32		hash = PipeannHashAgain(number + 1);
	uint32		step = PipeannHashAgain(hash);

	for (uint32 i = 0; bits > 0 && i < HASHES; i++)
	{
		uint32		bit = (hash + i * step) % bits;

		set[bit / 8] |= 1 << bit % 8;
	}
}

/* Tests of all bits of a number, as the next alternative. */
static void
AddNumber(const PipeannAttribute *attribute, uint32 number,
		  PipeannCodeFilter *filter)
{
	uint8		set[PIPEANN_MOST_WIDTH] = {0};
	PipeannCodeColumn *column = &filter->columns[filter->n - 1];

	column->otherwise = true;
	PipeannNumberBits(attribute, number, set);
	for (int i = 0; i < PipeannSetBytes(attribute); i++)
	{
		if (set[i] == 0)
			continue;
		column = PipeannAddTest(filter, attribute, 2 + i);
		PipeannLetPass(column, 0, set[i]);
		column->also = true;
	}
	column->also = false;
}

void
PipeannNumbersPass(const PipeannAttribute *attribute, const uint32 *numbers,
				   int n, PipeannCodeFilter *filter)
{
	PipeannCodeColumn *column;

	if (PipeannSetBytes(attribute) == 0 || n > MOST_NUMBERS ||
		PipeannFilterRoom(filter) < 1 + n * HASHES)
		return;
	/* nodes with one value, of which the ordered code tells */
	column = PipeannAddTest(filter, attribute, 0);
	memset(column->first, 0xFF, sizeof(column->first));
	column->first[0] &= ~1;
	for (int i = 0; i < n; i++)
		AddNumber(attribute, numbers[i], filter);
}
