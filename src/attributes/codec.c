/*
 * codec.c
 *		What both codecs use: tests of bytes of a code, and reporting a broken
 *		histogram.
 */
#include "postgres.h"

#include "attributes/coding.h"
#include "utils/rel.h"

/* Report a broken histogram. */
void
PipeannBrokenHistogram(const PipeannAttributes *a)
{
	PipeannCorrupted(a->index, "has an invalid histogram of attribute codes");
}

/* Add a test of a byte of the code; its set of values is empty. */
PipeannCodeColumn *
PipeannAddTest(PipeannCodeFilter *filter, const PipeannAttribute *attribute,
			   int byte)
{
	PipeannCodeColumn *column = &filter->columns[filter->n++];

	memset(column, 0, sizeof(*column));
	column->plane = attribute->plane + byte;
	column->width = 1;
	return column;
}

/* Add tests of bits[width] from a byte on as an alternative: all cleared, or all set. */
void
PipeannAddAlternative(PipeannCodeFilter *filter,
					  const PipeannAttribute *attribute, int from,
					  const uint8 *bits, int width, bool away)
{
	PipeannCodeColumn *column = NULL;

	for (int i = 0; i < width; i++)
	{
		if (bits[i] == 0)
			continue;
		column = PipeannAddTest(filter, attribute, from + i);
		PipeannLetPass(column, away ? bits[i] : 0, away ? 0 : bits[i]);
		column->also = true;
	}
	if (column != NULL)
	{
		column->also = false;
		column->otherwise = true;
	}
}
