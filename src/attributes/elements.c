/*
 * elements.c
 *		Attribute codes of arrays: which bits an element has, and how many there are.
 *
 * Elements that are frequent have a bit each, all others some bits of a Bloom
 * filter. The book of an array column tells which those are and how many. It knows
 * elements by their hashes: two with one hash share their bits, and a condition on
 * one lets the other pass, which does no harm.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type_d.h"
#include "attributes/coding.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/lsyscache.h"

/* The most bits that an element has in the Bloom filter. */
#define MOST_HASHES 8

/* Elements of a row that are counted. */
#define MOST_COUNTED 255

/*
 * A code is wide enough if it lets so many of a hundred rows pass in vain, or hardly
 * more than the widest.
 */
#define GOOD_SHARE (1.0 / 64)
#define GOOD_FACTOR 1.25

typedef struct ElementBook
{
	uint32		own;			/* elements with a bit of their own */
	uint32		hashes;			/* bits of each other one; 0 means 1 */
	float		in_vain;		/* rows that one of the others lets pass in vain */
	float		in_rows;		/* rows that one of the others is in */
	uint32		elements[PIPEANN_MOST_OWN_BITS];	/* [own], by their hashes */
} ElementBook;

/* Bits of a code but for the first one. */
static uint32
UsableBits(int width)
{
	return 8 * (uint32) width - 1;
}

static uint32
MostOwn(int width)
{
	return UsableBits(width) - 1;
}

/* The book, checked; NULL if there is none. */
static const ElementBook *
BookOf(const PipeannAttributes *a, const PipeannAttribute *attribute)
{
	const ElementBook *book = (const ElementBook *) attribute->book;

	if (book != NULL && (book->own > MostOwn(attribute->width) ||
						 book->hashes > MOST_HASHES))
		PipeannBrokenBook(a);
	return book;
}

/* Bit number 0 is the last one of the last byte. */
static void
SetBit(int width, uint32 bit, uint8 *bits)
{
	bits[width - 1 - bit / 8] |= 1 << bit % 8;
}

/* Sets *own to whether the bit is the element's own. */
static void
AddElement(const ElementBook *book, int width, uint32 hash, uint8 *bits,
		   bool *own)
{
	uint32		owned = book == NULL ? 0 : book->own;
	uint32		hashes = book == NULL ? 1 : Max(book->hashes, 1);
	uint32		rest = UsableBits(width) - owned;
	uint32		step = hashes > 1 ? PipeannHashAgain(hash) : 0;

	*own = true;
	for (uint32 i = 0; i < owned; i++)
		if (book->elements[i] == hash)
		{
			SetBit(width, UsableBits(width) - 1 - i, bits);
			return;
		}
	*own = false;
	for (uint32 i = 0; i < hashes; i++)
		SetBit(width, (hash + i * step) % rest, bits);
}

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

void
PipeannElementBits(const PipeannAttributes *a,
				   const PipeannAttribute *attribute, uint32 element,
				   uint8 *bits, bool *own)
{
	memset(bits, 0, attribute->width);
	AddElement(BookOf(a, attribute), attribute->width, element, bits, own);
}

void
PipeannElementsEncode(const PipeannAttributes *a, PipeannAttribute *attribute,
					  Datum value, bool isnull, uint8 *code)
{
	const ElementBook *book = BookOf(a, attribute);
	uint8		bits[PIPEANN_MOST_WIDTH] = {0};
	PipeannElements elements = {0};
	bool		own;

	if (!isnull)
		elements = PipeannElementsOf(attribute, value);
	for (int i = 0; i < elements.n; i++)
		AddElement(book, attribute->width, elements.hashes[i], bits, &own);
	for (int i = 0; i < attribute->width; i++)
		code[i] = ~bits[i];
}

double
PipeannElementPrecision(const PipeannAttributes *a,
						const PipeannAttribute *attribute)
{
	const ElementBook *book = BookOf(a, attribute);

	if (book == NULL || book->in_rows <= 0)
		return PIPEANN_BLOOM_PRECISION;
	return book->in_rows / (book->in_rows + book->in_vain);
}

/* ---------- samples ---------- */

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
TakeElements(PipeannAttribute *attribute, const Datum *values, uint32 n,
			 Sample *s)
{
	uint32		size = 1024;
	uint32		taken = 0;

	s->rows = n;
	s->elements = palloc(mul_size(size, sizeof(Element)));
	for (uint32 i = 0; i < s->rows; i++)
	{
		PipeannElements elements = PipeannElementsOf(attribute, values[i]);

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
SampleOf(PipeannAttribute *attribute, const Datum *values, uint32 n)
{
	Sample		s = {0};

	TakeElements(attribute, values, n, &s);
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
	for (uint32 hashes = 1; hashes <= MOST_HASHES; hashes++)
	{
		double		in_vain = ShareInVain(s, rows_with,
										  UsableBits(best->width) - own,
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
	uint32		most = Min(MostOwn(width), s->n);

	if (s->rows == 0)
		return best;
	for (uint32 own = 0; own < most; own = own * 2 + 1)
		TryOwn(s, own, &best);
	TryOwn(s, most, &best);
	return best;
}

int
PipeannElementsWidth(PipeannAttribute *attribute, const Datum *values,
					 uint32 n)
{
	Sample		s = SampleOf(attribute, values, n);
	double		widest = BestOf(&s, PIPEANN_MOST_WIDTH).in_vain;
	int			width = 1;

	while (width < PIPEANN_MOST_WIDTH &&
		   BestOf(&s, width).in_vain > Max(GOOD_SHARE, GOOD_FACTOR * widest))
		width++;
	return width;
}

void
PipeannElementsTrain(PipeannAttribute *attribute, const Datum *values,
					 uint32 n, char *book)
{
	ElementBook *to = (ElementBook *) book;
	Sample		s = SampleOf(attribute, values, n);
	Choice		best = BestOf(&s, attribute->width);
	uint64		rows = 0;

	if (s.rows == 0)
		return;
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
