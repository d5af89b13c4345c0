/*
 * coding.h
 *		How filter columns are coded; private to attributes/.
 */
#ifndef PIPEANN_CODING_H
#define PIPEANN_CODING_H

#include "attributes/attributes.h"
#include "base/id_set.h"
#include "common/hashfn.h"

/* The function that compares values, or hashes elements. */
typedef struct PipeannOrder
{
	Oid			function;
	Oid			collation;		/* with which it is called */
	Oid			family;			/* its B-tree operator family, or Invalid if by type */
} PipeannOrder;

typedef struct PipeannAttribute PipeannAttribute;

/* Samples of a column's values. */
typedef struct PipeannSamples
{
	Datum	   *values;			/* without NULLs, and values that are too long */
	uint32		n;
	uint32		nodes;			/* sampled */
	uint32		mixed;			/* nodes with several values */
	uint64		mixed_values;	/* values of these, in total */
} PipeannSamples;

/*
 * A codec: how the values of a column are coded, in [width] bytes of a node's code.
 * Values have one by their order, arrays one by their elements.
 */
typedef struct PipeannCodec
{
	/*
	 * Find the function that compares values of a type, or hashes elements of it;
	 * false if there is none, or if an operator class, of this family and input
	 * type, has another equality. Without a class the family is invalid.
	 */
	bool		(*find_order) (Oid type, Oid family, Oid intype,
							   PipeannOrder *order);

	/* the width without samples, and with samples */
	int			(*first_width) (Oid type);
	int			(*width) (PipeannAttribute *attribute,
						  const PipeannSamples *samples);

	/* what is sampled */
	uint32		most_samples;	/* about */
	Size		most_bytes;		/* of a value */

	/* make a histogram, which is all zeroes; samples may be sorted */
	void		(*train) (const PipeannAttributes *a,
						  PipeannAttribute *attribute,
						  const PipeannSamples *samples, char *histogram);

	/* set the code to that of a value */
	void		(*encode) (const PipeannAttributes *a,
						   PipeannAttribute *attribute, Datum value,
						   bool isnull, uint8 *code);

	/* make a code cover everything; make one that was written cover another, too */
	void		(*mix) (const PipeannAttribute *attribute, uint8 *code);
	void		(*merge) (const PipeannAttribute *attribute,
						  const uint8 *other, uint8 *code);

	/* whether a code that was written may cover more than one row's values */
	bool		(*may_shrink) (const PipeannAttribute *attribute,
							   const uint8 *code);

	/* add tests of what passes the conditions on the column; searches run them */
	void		(*pass) (const PipeannAttributes *a,
						 PipeannAttribute *attribute,
						 const PipeannCondition *conditions, int n,
						 PipeannCodeFilter *filter);
} PipeannCodec;

extern const PipeannCodec PipeannValueCodec;	/* values.c */
extern const PipeannCodec PipeannElementCodec;	/* elements.c */

struct PipeannAttribute
{
	const PipeannCodec *codec;
	int			number;			/* of the column among the values */
	int			position;		/* among all columns */
	int			plane;			/* the code's first byte */
	int			width;			/* bytes */
	Form_pg_attribute type;
	PipeannOrder order;
	FmgrInfo	function;		/* compares two values, or hashes an element */
	const char *histogram;			/* or NULL */
	Size		histogram_size;
};

struct PipeannAttributes
{
	Relation	index;
	TupleDesc	values;
	int			columns;		/* number of leading values that are looked
								 * at */
	int			bytes;
	int			n;
	PipeannAttribute attributes[PIPEANN_MOST_CODED];
	char	   *tuple;			/* room for a row */
	MemoryContext scratch;
};

static inline int
PipeannCompareValues(PipeannAttribute *attribute, Datum a, Datum b)
{
	return DatumGetInt32(FunctionCall2Coll(&attribute->function,
										   attribute->order.collation, a, b));
}

/* Let values of a byte pass in which some bits are cleared, and others set. */
static inline void
PipeannLetPass(PipeannCodeColumn *column, uint32 away, uint32 there)
{
	for (uint32 value = 0; value < 256; value++)
		if ((value & away) == 0 && (value & there) == there)
			PipeannSetBit(column->first, value);
}

/* A second hash, which is odd. */
static inline uint32
PipeannHashAgain(uint32 hash)
{
	return murmurhash32(hash) | 1;
}

/* Report a broken histogram. */
static inline void
PipeannBrokenHistogram(const PipeannAttributes *a)
{
	PipeannCorrupted(a->index, "has an invalid histogram of attribute codes");
}

/* Add a test of a byte of the code; its set of values is empty. */
static inline PipeannCodeColumn *
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
static inline void
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

#endif							/* PIPEANN_CODING_H */
