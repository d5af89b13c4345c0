/*
 * coding.h
 *		How filter columns are coded; private to attributes/.
 */
#ifndef PIPEANN_CODING_H
#define PIPEANN_CODING_H

#include "attributes/attributes.h"

/*
 * A code of an ordered column is a number: 0 for NULL, 1 + p for position p. The
 * column's book has n boundaries in order; position 2 * i + 1 is boundary i itself,
 * 2 * i is what is between it and the one before. So a value that is frequent has a
 * code of its own, and a range of values is a range of codes.
 *
 * Zeroes are where nothing has been written: no row that a snapshot sees is in such
 * a node, since an insert writes the code before it ends. Of one byte the number
 * stands 2 higher, and 1 means any value, for a node whose rows differ. Of two bytes
 * the number is written to the base of 255, so that none is 0, and a code means any
 * value if its first byte alone is 0. A reader may see one byte of a change and not
 * the other: when a node comes to mean any value only the first one changes.
 *
 * Bytes behind these two tell which values such a node may have: they are a Bloom
 * filter of the numbers of its rows (numbers.c), and that of the only number of other
 * nodes.
 *
 * A code of arrays has bits for each element (elements.c), inverted, so that rows
 * that join a node take bits away. The first one is set in all that is written.
 */
#define PIPEANN_UNWRITTEN 0
#define PIPEANN_MIXED 1
#define PIPEANN_FIRST_NARROW 2	/* the number 0, of one byte */
#define PIPEANN_WIDE_BASE 255
#define PIPEANN_MOST_NARROW (255 - PIPEANN_FIRST_NARROW)	/* numbers */
#define PIPEANN_MOST_WIDE (PIPEANN_WIDE_BASE * PIPEANN_WIDE_BASE - 1)
#define PIPEANN_NO_WIDE 0x100	/* the code of no number */
#define PIPEANN_ARRAY_WRITTEN 0x80	/* in the first byte of an array's code */
#define PIPEANN_MOST_OWN_BITS (8 * PIPEANN_MOST_WIDTH - 2)

/* Of nodes that an array's code lets pass so many match, if nobody knows. */
#define PIPEANN_BLOOM_PRECISION 0.1

/* What compares values, or hashes elements. */
typedef struct PipeannOrder
{
	Oid			function;
	Oid			collation;		/* with which it is called */
	Oid			family;			/* of B-trees, whose it is; Invalid if by type */
} PipeannOrder;

typedef struct PipeannAttribute
{
	int			number;			/* of the column among the values */
	int			position;		/* among all columns */
	int			plane;			/* the code's first byte */
	int			width;			/* bytes */
	bool		is_array;
	Form_pg_attribute type;
	PipeannOrder order;
	FmgrInfo	function;		/* compares two values, or hashes an element */
	bool		is_known;		/* codes are by this order; else they mean any
								 * value */
	const char *book;			/* boundaries, or NULL */
	Size		book_size;
} PipeannAttribute;

struct PipeannAttributes
{
	Relation	index;
	TupleDesc	values;
	int			columns;		/* of the values, those before which are looked
								 * at */
	int			bytes;
	bool		by_type;		/* widths, and bits of arrays: before format 5 */
	bool		by_class;		/* what compares values: from format 6 on */
	bool		differs;		/* a class compares other than its type does */
	int			n;
	PipeannAttribute attributes[PIPEANN_MOST_CODED];
	char	   *tuple;			/* room for a row */
	MemoryContext scratch;
};

/* A number's two bytes, the first one as the higher. */
static inline uint16
PipeannWideCode(uint32 number)
{
	return (uint16) ((1 + number / PIPEANN_WIDE_BASE) << 8 |
					 (1 + number % PIPEANN_WIDE_BASE));
}

/* order.c */

/* By a type (elements' type of arrays); false if it has none. */
extern bool PipeannOrderOfType(Oid type, bool is_array, Oid collation,
							   PipeannOrder *order);

/* By the operator class of a column of such a type; false if that has none. */
extern bool PipeannOrderOfClass(Relation index, int position, Oid type,
								bool is_array, Oid collation,
								PipeannOrder *order);

/* Whether an operator is that of our strategy in the order. */
extern bool PipeannOrderHas(const PipeannOrder *order, Oid operator,
							int strategy);

/* book.c */

/* Report a broken book. */
extern void PipeannBrokenBook(const PipeannAttributes *a);

/* Boundaries of an attribute, 0 if it has no book. Errors if that is broken. */
extern uint32 PipeannBookLength(const PipeannAttributes *a,
								const PipeannAttribute *attribute);
extern Datum PipeannBookBoundary(const PipeannAttributes *a,
								 const PipeannAttribute *attribute, uint32 i);

/* Choose a width by samples, and make a book for a width; they sort the samples. */
extern int	PipeannBookWidth(PipeannAttribute *attribute, Datum *values,
							 uint32 n);
extern void PipeannBookTrain(PipeannAttribute *attribute, Datum *values,
							 uint32 n, char *book);

/* attributes.c */

/* The width that a column's option asks for, or 0. */
extern int	PipeannWantedWidth(const PipeannAttributes *a,
							   const PipeannAttribute *attribute);

/* numbers.c */

/* Bytes of a code of numbers that tell which ones a node has. */
static inline int
PipeannSetBytes(const PipeannAttribute *attribute)
{
	return attribute->is_array ? 0 : Max(attribute->width - 2, 0);
}

/* Set the bits of a number in set[PipeannSetBytes()], where others stay. */
extern void PipeannNumberBits(const PipeannAttribute *attribute, uint32 number,
							  uint8 *set);

/* Have nodes of several values pass only if they may have one of these numbers. */
extern void PipeannNumbersPass(const PipeannAttribute *attribute,
							   const uint32 *numbers, int n,
							   PipeannCodeFilter *filter);

/* elements.c */

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

/* The elements of an array but for NULLs, by their hashes. */
typedef struct PipeannElements
{
	int			n;
	uint32	   *hashes;
} PipeannElements;

extern PipeannElements PipeannElementsOf(PipeannAttribute *attribute,
										 Datum array);

/* Set bits[width] to those of an element, and *own to whether it alone has them. */
extern void PipeannElementBits(const PipeannAttributes *a,
							   const PipeannAttribute *attribute,
							   uint32 element, uint8 *bits, bool *own);

/* Set code[width] to that of an array. */
extern void PipeannElementsEncode(const PipeannAttributes *a,
								  PipeannAttribute *attribute, Datum array,
								  bool isnull, uint8 *code);

/* Of nodes that an element without a bit of its own lets pass so many have it. */
extern double PipeannElementPrecision(const PipeannAttributes *a,
									  const PipeannAttribute *attribute);

/* Choose a width by samples, and make a book for a width. */
extern int	PipeannElementsWidth(PipeannAttribute *attribute,
								 const Datum *arrays, uint32 n);
extern void PipeannElementsTrain(PipeannAttribute *attribute,
								 const Datum *arrays, uint32 n, char *book);

/* pass_elements.c */

/* Tests that there is still room for in a filter. */
static inline int
PipeannFilterRoom(const PipeannCodeFilter *filter)
{
	return PIPEANN_MAX_CODE_COLUMNS - filter->n;
}

/* Add a test of a byte of the code; its set of values is empty. */
extern PipeannCodeColumn *PipeannAddTest(PipeannCodeFilter *filter,
										 const PipeannAttribute *attribute,
										 int byte);

/* Have values of a byte pass in which none of some bits is, and all of others. */
extern void PipeannLetPass(PipeannCodeColumn *column, uint32 away,
						   uint32 there);

/* Add tests of what passes a condition on a column of arrays. */
extern void PipeannElementsPass(const PipeannAttributes *a,
								PipeannAttribute *attribute,
								const PipeannCondition *condition,
								PipeannCodeFilter *filter);

#endif							/* PIPEANN_CODING_H */
