/*
 * element_book.c
 *		The books of the codec of arrays: which elements have a bit of their own, and
 *		how many bits others have.
 */
#include "postgres.h"

#include <math.h>

#include "attributes/coding.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/lsyscache.h"

/* Elements of a row that are counted. */
#define MOST_COUNTED 255

/*
 * A code is wide enough if it lets so many of a hundred rows pass in vain, or hardly
 * more than the widest.
 */
#define GOOD_SHARE (1.0 / 64)
#define GOOD_FACTOR 1.25

PipeannElements
PipeannElementsOf(PipeannAttribute *attribute, Datum value)
{
	ArrayType  *array = DatumGetArrayTypeP(value);
	PipeannElements elements = {0};
	int16		length;
	bool		by_value;
	char		alignment;
	Datum	   *values;
	bool	   *nulls;
	int			n;

	get_typlenbyvalalign(ARR_ELEMTYPE(array), &length, &by_value, &alignment);
	deconstruct_array(array, ARR_ELEMTYPE(array), length, by_value, alignment,
					  &values, &nulls, &n);
	elements.hashes = palloc(mul_size(Max(n, 1), sizeof(uint32)));
	for (int i = 0; i < n; i++)
		if (!nulls[i])
			elements.hashes[elements.n++] =
				DatumGetUInt32(FunctionCall1Coll(&attribute->function,
												 attribute->order.collation,
												 values[i]));
	return elements;
}

typedef struct Element
{
	uint32		hash;
	uint32		row;
} Element;

typedef struct Counted
{
	uint32		hash;
	uint32		rows;
} Counted;

/* What is known of the elements of some rows. */
typedef struct Sample
{
	uint32		rows;
	uint32		n;				/* different elements, the frequent ones first */
	Counted    *counted;
	uint32		pairs;			/* of a row and an element that it has */
	Element    *elements;
} Sample;

/* How a code could be, and what it would let pass in vain. */
typedef struct Choice
{
	int			width;
	uint32		own;
	uint32		hashes;
	double		in_vain;
} Choice;

static int
CompareElements(const void *x, const void *y)
{
	const Element *a = x;
	const Element *b = y;

	if (a->hash != b->hash)
		return a->hash < b->hash ? -1 : 1;
	return a->row < b->row ? -1 : a->row > b->row;
}

static int
CompareCounted(const void *x, const void *y)
{
	const Counted *a = x;
	const Counted *b = y;

	if (a->rows != b->rows)
		return a->rows > b->rows ? -1 : 1;
	return a->hash < b->hash ? -1 : a->hash > b->hash;
}

/* The elements of all rows, each once for a row. */
static void
TakeElements(PipeannAttribute *attribute, const PipeannSamples *samples,
			 Sample *s)
{
	uint32		size = 1024;
	uint32		taken = 0;

	s->rows = samples->n;
	s->elements = palloc(mul_size(size, sizeof(Element)));
	for (uint32 i = 0; i < s->rows; i++)
	{
		PipeannElements elements = PipeannElementsOf(attribute, samples->values[i]);

		CHECK_FOR_INTERRUPTS();
		while (taken + elements.n > size)
		{
			size *= 2;
			s->elements = repalloc_huge(s->elements,
										mul_size(size, sizeof(Element)));
		}
		for (int j = 0; j < elements.n; j++)
			s->elements[taken++] = (Element)
		{
			.hash = elements.hashes[j],.row = i
		};
		pfree(elements.hashes);
	}
	qsort(s->elements, taken, sizeof(Element), CompareElements);
	for (uint32 i = 0; i < taken; i++)
		if (s->pairs == 0 || CompareElements(&s->elements[s->pairs - 1],
											 &s->elements[i]) != 0)
			s->elements[s->pairs++] = s->elements[i];
}

static void
CountElements(Sample *s)
{
	s->counted = palloc(mul_size(Max(s->pairs, 1), sizeof(Counted)));
	for (uint32 i = 0; i < s->pairs; i++)
	{
		if (i == 0 || s->elements[i].hash != s->elements[i - 1].hash)
			s->counted[s->n++] = (Counted)
		{
			.hash = s->elements[i].hash
		};
		s->counted[s->n - 1].rows++;
	}
	qsort(s->counted, s->n, sizeof(Counted), CompareCounted);
}

static Sample
SampleOf(PipeannAttribute *attribute, const PipeannSamples *samples)
{
	Sample		s = {0};

	TakeElements(attribute, samples, &s);
	CountElements(&s);
	return s;
}

/* ---------- what is best ---------- */

static bool
IsOwn(const Sample *s, uint32 own, uint32 hash)
{
	for (uint32 i = 0; i < own; i++)
		if (s->counted[i].hash == hash)
			return true;
	return false;
}

/* The number of rows with so many elements that have no bit of their own. */
static void
CountOthers(const Sample *s, uint32 own, uint32 *rows_with)
{
	uint32	   *others = palloc0(mul_size(Max(s->rows, 1), sizeof(uint32)));
	bool		is_own = false;

	for (uint32 i = 0; i < s->pairs; i++)
	{
		const Element *element = &s->elements[i];

		if (i == 0 || element->hash != s->elements[i - 1].hash)
			is_own = IsOwn(s, own, element->hash);
		if (!is_own)
			others[element->row]++;
	}
	memset(rows_with, 0, (MOST_COUNTED + 1) * sizeof(uint32));
	for (uint32 i = 0; i < s->rows; i++)
		rows_with[Min(others[i], MOST_COUNTED)]++;
	pfree(others);
}

/* The share of rows that have all bits of an element that they do not have. */
static double
ShareInVain(const Sample *s, const uint32 *rows_with, uint32 bits,
			uint32 hashes)
{
	double		sum = 0;

	for (uint32 i = 1; i <= MOST_COUNTED; i++)
		if (rows_with[i] > 0)
			sum += rows_with[i] *
				pow(1 - pow(1 - 1.0 / bits, (double) i * hashes), hashes);
	return sum / s->rows;
}

/* Take the best of codes with so many own bits, if that is better. */
static void
TryOwn(const Sample *s, uint32 own, Choice *best)
{
	uint32		rows_with[MOST_COUNTED + 1];

	CountOthers(s, own, rows_with);
	for (uint32 hashes = 1; hashes <= PIPEANN_MOST_HASHES; hashes++)
	{
		double		in_vain = ShareInVain(s, rows_with,
										  PipeannElementBits(best->width) - own,
										  hashes);

		if (in_vain < best->in_vain)
		{
			best->own = own;
			best->hashes = hashes;
			best->in_vain = in_vain;
		}
	}
}

static Choice
BestOf(const Sample *s, int width)
{
	Choice		best = {.width = width,.hashes = 1,.in_vain = 2};
	uint32		most = Min(PipeannMostOwn(width), s->n);

	if (s->rows == 0)
		return best;
	for (uint32 own = 0; own < most; own = own * 2 + 1)
		TryOwn(s, own, &best);
	TryOwn(s, most, &best);
	return best;
}

/* The codec's width and train. */
int
PipeannElementWidth(PipeannAttribute *attribute, const PipeannSamples *samples)
{
	Sample		s;
	double		widest;
	int			width = 1;

	if (samples->n == 0)
		return attribute->width;
	s = SampleOf(attribute, samples);
	widest = BestOf(&s, PIPEANN_MOST_WIDTH).in_vain;
	while (width < PIPEANN_MOST_WIDTH &&
		   BestOf(&s, width).in_vain > Max(GOOD_SHARE, GOOD_FACTOR * widest))
		width++;
	return width;
}

/* Before format 5 all elements have one bit of all. */
void
PipeannElementTrain(const PipeannAttributes *a, PipeannAttribute *attribute,
					const PipeannSamples *samples, char *book)
{
	PipeannElementBook *to = (PipeannElementBook *) book;
	Sample		s;
	Choice		best;
	uint64		rows = 0;

	if (a->by_type || samples->n == 0)
		return;
	s = SampleOf(attribute, samples);
	best = BestOf(&s, attribute->width);
	to->own = best.own;
	to->hashes = best.hashes;
	to->in_vain = best.in_vain;
	for (uint32 i = 0; i < best.own; i++)
		to->elements[i] = s.counted[i].hash;
	for (uint32 i = best.own; i < s.n; i++)
		rows += s.counted[i].rows;
	if (s.n > best.own)
		to->in_rows = (float) rows / (s.n - best.own) / s.rows;
}
