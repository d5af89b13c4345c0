/*
 * coding.h
 *		How filter columns are coded; private to attributes/.
 */
#ifndef PIPEANN_CODING_H
#define PIPEANN_CODING_H

#include "attributes/attributes.h"
#include "base/bits.h"

/* What compares values, or hashes elements. */
typedef struct PipeannOrder
{
	Oid			function;
	Oid			collation;		/* with which it is called */
	Oid			family;			/* of B-trees, whose it is; Invalid if by type */
} PipeannOrder;

typedef struct PipeannAttribute PipeannAttribute;

/* What a sample of rows tells of a column. */
typedef struct PipeannSamples
{
	Datum	   *values;			/* but for NULLs, and those that are too long */
	uint32		n;
	uint32		nodes;			/* that were looked at */
	uint32		mixed;			/* of them those with several values */
	uint64		mixed_values;	/* that these have in sum */
} PipeannSamples;

/*
 * A codec: how the values of a column are coded, in [width] bytes of a node's code.
 * Values have one by their order, arrays one by their elements.
 */
typedef struct PipeannCodec
{
	/*
	 * What compares values, or hashes elements; Invalid, or false, if nothing does. The
	 * order of an operator class is that by the type before.
	 */
	Oid			(*function_of_type) (Oid type);
	bool		(*order_of_class) (Oid family, Oid intype,
								   PipeannOrder *order);

	/* a width before there are samples, and by them */
	int			(*first_width) (Oid type);
	int			(*width) (PipeannAttribute *attribute,
						  const PipeannSamples *samples);

	/* what it samples */
	uint32		most_samples;	/* about */
	Size		most_bytes;		/* of a value */
	bool		by_nodes;		/* whether the width is by the values of nodes */

	/* make a histogram, which is all zeroes; samples may be sorted */
	void		(*train) (const PipeannAttributes *a,
						  PipeannAttribute *attribute,
						  const PipeannSamples *samples, char *histogram);

	/* set the code to that of a value */
	void		(*encode) (const PipeannAttributes *a,
						   PipeannAttribute *attribute, Datum value,
						   bool isnull, uint8 *code);

	/* have it cover everything; have one that was written cover another, too */
	void		(*mix) (const PipeannAttribute *attribute, uint8 *code);
	void		(*merge) (const PipeannAttribute *attribute,
						  const uint8 *other, uint8 *code);

	/* whether it was written; whether one that was covers that of a row */
	bool		(*is_written) (const PipeannAttribute *attribute,
							   const uint8 *code);
	bool		(*covers) (const PipeannAttribute *attribute,
						   const uint8 *code, const uint8 *row);

	/* whether it may cover more than one row does */
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
	bool		is_known;		/* codes are by this order; else they mean any
								 * value */
	const char *histogram;			/* or NULL */
	Size		histogram_size;
};

struct PipeannAttributes
{
	Relation	index;
	TupleDesc	values;
	int			columns;		/* of the values, those before which are looked
								 * at */
	int			bytes;
	bool		by_class;		/* what compares values: from format 6 on */
	bool		differs;		/* a class compares other than its type does */
	int			n;
	PipeannAttribute attributes[PIPEANN_MOST_CODED];
	char	   *tuple;			/* room for a row */
	MemoryContext scratch;
};

/* There is none behind the last one. */
static inline void
PipeannEndAlternatives(PipeannCodeFilter *filter)
{
	filter->columns[filter->n - 1].otherwise = false;
}

/* Tests that there is still room for in a filter. */
static inline int
PipeannFilterRoom(const PipeannCodeFilter *filter)
{
	return PIPEANN_MAX_CODE_COLUMNS - filter->n;
}

/* Whether all bits of b[n] are in a[n]. */
static inline bool
PipeannHasBits(const uint8 *a, const uint8 *b, int n)
{
	for (int i = 0; i < n; i++)
		if ((b[i] & ~a[i]) != 0)
			return false;
	return true;
}

/*
 * Have values of a byte pass in which none of some bits is, and all of others.
 */
static inline void
PipeannLetPass(PipeannCodeColumn *column, uint32 away, uint32 there)
{
	for (uint32 value = 0; value < 256; value++)
		if ((value & away) == 0 && (value & there) == there)
			PipeannSetBit(column->first, value);
}

/* A second hash, by the finaliser of MurmurHash3; it is odd. */
static inline uint32
PipeannHashAgain(uint32 hash)
{
	hash ^= hash >> 16;
	hash *= 0x85ebca6bU;
	hash ^= hash >> 13;
	hash *= 0xc2b2ae35U;
	return (hash ^ hash >> 16) | 1;
}

/* Numbers of codes, by their bytes. */
#define PIPEANN_MOST_NARROW 253
#define PIPEANN_MOST_WIDE (255 * 255 - 1)

static inline uint32
PipeannMostNumber(const PipeannAttribute *attribute)
{
	return attribute->width == 1 ? PIPEANN_MOST_NARROW : PIPEANN_MOST_WIDE;
}

/* The most bits that an element has in the Bloom filter. */
#define PIPEANN_MOST_HASHES 8

typedef struct PipeannElementHistogram
{
	uint32		own;			/* elements with a bit of their own */
	uint32		hashes;			/* bits of each other one; 0 means 1 */
	float		in_vain;		/* rows that one of the others lets pass in vain */
	float		in_rows;		/* rows that one of the others is in */
	uint32		elements[8 * PIPEANN_MOST_WIDTH - 2];	/* [own], by their hashes */
} PipeannElementHistogram;

/* Bits of a code but for the first one. */
static inline uint32
PipeannElementBits(int width)
{
	return 8 * (uint32) width - 1;
}

static inline uint32
PipeannMostOwn(int width)
{
	return PipeannElementBits(width) - 1;
}

/* The elements of an array but for NULLs, by their hashes. */
typedef struct PipeannElements
{
	int			n;
	uint32	   *hashes;
} PipeannElements;

/* codec.c */
extern void PipeannBrokenHistogram(const PipeannAttributes *a);
extern PipeannCodeColumn *PipeannAddTest(PipeannCodeFilter *filter,
										 const PipeannAttribute *attribute,
										 int byte);
extern void PipeannAddAlternative(PipeannCodeFilter *filter,
								  const PipeannAttribute *attribute, int from,
								  const uint8 *bits, int width, bool away);

#endif							/* PIPEANN_CODING_H */
