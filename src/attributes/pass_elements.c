/*
 * pass_elements.c
 *		Conditions on arrays as tests of attribute codes.
 *
 * A code has a bit less for each bit of an element that one of the node's arrays has
 * (elements.c). So a node may have an element if all of that one's bits are away. Bits
 * are tested byte by byte, as one byte of all nodes stands together.
 */
#include "postgres.h"

#include "access/skey.h"
#include "attributes/coding.h"

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

void
PipeannLetPass(PipeannCodeColumn *column, uint32 away, uint32 there)
{
	for (uint32 value = 0; value < 256; value++)
		if ((value & away) == 0 && (value & there) == there)
			column->first[value / 8] |= 1 << value % 8;
}

/* Elements that all have to be there. The first byte tells what was written, too. */
static void
PassAll(const PipeannAttributes *a, const PipeannAttribute *attribute,
		PipeannElements elements, PipeannCodeFilter *filter)
{
	uint8		all[PIPEANN_MOST_WIDTH] = {0};
	bool		exact = true;

	for (int i = 0; i < elements.n; i++)
	{
		uint8		bits[PIPEANN_MOST_WIDTH];
		bool		own;

		PipeannElementBits(a, attribute, elements.hashes[i], bits, &own);
		for (int j = 0; j < attribute->width; j++)
			all[j] |= bits[j];
		exact &= own;
	}
	for (int j = attribute->width - 1; j >= 0; j--)
		if (all[j] != 0 || j == 0)
			PipeannLetPass(PipeannAddTest(filter, attribute, j), all[j],
					j == 0 ? PIPEANN_ARRAY_WRITTEN : 0);
	if (!exact)
		filter->precision = Min(filter->precision,
								PipeannElementPrecision(a, attribute));
}

/* The bytes in which bits are; *first is the first of them. */
static int
BytesWith(const uint8 *bits, int width, int *first)
{
	int			n = 0;

	for (int i = width - 1; i >= 0; i--)
		if (bits[i] != 0)
		{
			n++;
			*first = i;
		}
	return n;
}

/* Tests of all bytes of one element, as an alternative. */
static void
AddAlternative(const PipeannAttribute *attribute, const uint8 *bits,
			   PipeannCodeFilter *filter)
{
	for (int i = 0; i < attribute->width; i++)
	{
		PipeannCodeColumn *column;

		if (bits[i] == 0)
			continue;
		column = PipeannAddTest(filter, attribute, i);
		PipeannLetPass(column, bits[i], 0);
		column->also = true;
	}
	filter->columns[filter->n - 1].also = false;
	filter->columns[filter->n - 1].otherwise = true;
}

/*
 * Elements of which one has to be there. Those with bits in one byte only share a test
 * of this; and so do, by a part of their bits, those for which there is no more room.
 */
static void
PassAny(const PipeannAttributes *a, const PipeannAttribute *attribute,
		PipeannElements elements, PipeannCodeFilter *filter)
{
	PipeannCodeColumn shared[PIPEANN_MOST_WIDTH] = {0};
	bool		is_shared[PIPEANN_MOST_WIDTH] = {false};
	bool		exact = true;
	int			before = filter->n;

	for (int i = 0; i < elements.n; i++)
	{
		uint8		bits[PIPEANN_MOST_WIDTH];
		bool		own;
		int			byte = 0;
		int			n;

		PipeannElementBits(a, attribute, elements.hashes[i], bits, &own);
		n = BytesWith(bits, attribute->width, &byte);
		exact &= own;
		if (n > 1 && PipeannFilterRoom(filter) >= n + attribute->width + 1)
		{
			AddAlternative(attribute, bits, filter);
			continue;
		}
		is_shared[byte] = true;
		PipeannLetPass(&shared[byte], bits[byte], 0);
	}
	for (int i = 0; i < attribute->width; i++)
		if (is_shared[i])
		{
			PipeannCodeColumn *column = PipeannAddTest(filter, attribute, i);

			memcpy(column->first, shared[i].first, sizeof(column->first));
			column->otherwise = true;
		}
	if (!exact)
		filter->precision = Min(filter->precision,
								PipeannElementPrecision(a, attribute));
	if (filter->n > before)
		filter->columns[filter->n - 1].otherwise = false;
	else
		(void) PipeannAddTest(filter, attribute, 0);	/* nothing passes */
}

void
PipeannElementsPass(const PipeannAttributes *a, PipeannAttribute *attribute,
					const PipeannCondition *condition,
					PipeannCodeFilter *filter)
{
	ScanKey		key = condition->key;
	PipeannElements elements = {0};
	bool		all = key->sk_strategy == PIPEANN_CONTAINS_STRATEGY;

	/* one test of what was written, and those of an element at least */
	if (PipeannFilterRoom(filter) < 2 * attribute->width + 2)
		return;
	if ((key->sk_flags & (SK_SEARCHNULL | SK_SEARCHNOTNULL | SK_SEARCHARRAY)) ||
		(!all && key->sk_strategy != PIPEANN_OVERLAPS_STRATEGY))
		all = true;
	else
		elements = PipeannElementsOf(attribute, condition->arguments[0]);
	if (all || elements.n == 1)
		PassAll(a, attribute, elements, filter);
	else
	{
		PipeannLetPass(PipeannAddTest(filter, attribute, 0), 0, PIPEANN_ARRAY_WRITTEN);
		PassAny(a, attribute, elements, filter);
	}
}
