/*
 * elements.c
 *		The codec of arrays: bits of their elements.
 *
 * A code has bits for each element, inverted, so that rows that join a node take bits
 * away. The first one is set in all that is written.
 *
 * Elements that are frequent have a bit each, all others some bits of a Bloom
 * filter. The book of an array column tells which those are and how many. It knows
 * elements by their hashes: two with one hash share their bits, and a condition on
 * one lets the other pass, which does no harm.
 */
#include "postgres.h"

#include "access/skey.h"
#include "attributes/coding.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/typcache.h"

/* In the first byte of a code. */
#define WRITTEN 0x80

/* Of nodes that a code lets pass so many match, if nobody knows. */
#define BLOOM_PRECISION 0.1

/* The book, checked; NULL if there is none. */
static const PipeannElementBook *
BookOf(const PipeannAttributes *a, const PipeannAttribute *attribute)
{
	const PipeannElementBook *book = (const PipeannElementBook *) attribute->book;

	if (book != NULL && (book->own > PipeannMostOwn(attribute->width) ||
						 book->hashes > PIPEANN_MOST_HASHES))
		PipeannBrokenBook(a);
	return book;
}

/* Bit number 0 is the last one of the last byte. */
static void
SetBit(int width, uint32 bit, uint8 *bits)
{
	bits[width - 1 - bit / 8] |= 1 << bit % 8;
}

/* Add the bits of an element. Returns whether it alone has them. */
static bool
AddElement(const PipeannElementBook *book, int width, uint32 hash, uint8 *bits)
{
	uint32		owned = book == NULL ? 0 : book->own;
	uint32		hashes = book == NULL ? 1 : Max(book->hashes, 1);
	uint32		rest = PipeannElementBits(width) - owned;
	uint32		step = hashes > 1 ? PipeannHashAgain(hash) : 0;

	for (uint32 i = 0; i < owned; i++)
		if (book->elements[i] == hash)
		{
			SetBit(width, PipeannElementBits(width) - 1 - i, bits);
			return true;
		}
	for (uint32 i = 0; i < hashes; i++)
		SetBit(width, (hash + i * step) % rest, bits);
	return false;
}

/* ---------- codes ---------- */

static void
Encode(const PipeannAttributes *a, PipeannAttribute *attribute, Datum value,
	   bool isnull, uint8 *code)
{
	const PipeannElementBook *book = BookOf(a, attribute);
	PipeannElements elements = {0};

	memset(code, 0, attribute->width);
	if (!isnull)
		elements = PipeannElementsOf(attribute, value);
	for (int i = 0; i < elements.n; i++)
		(void) AddElement(book, attribute->width, elements.hashes[i], code);
	for (int i = 0; i < attribute->width; i++)
		code[i] = ~code[i];
}

static void
Mix(const PipeannAttribute *attribute, uint8 *code)
{
	memset(code, 0, attribute->width);
	code[0] = WRITTEN;
}

static void
Merge(const PipeannAttribute *attribute, const uint8 *other, uint8 *code)
{
	for (int i = 0; i < attribute->width; i++)
		code[i] &= other[i];
}

static bool
IsWritten(const PipeannAttribute *attribute, const uint8 *code)
{
	(void) attribute;
	return (code[0] & WRITTEN) != 0;
}

static bool
Covers(const PipeannAttribute *attribute, const uint8 *code, const uint8 *row)
{
	return PipeannHasBits(row, code, attribute->width);
}

static bool
MayShrink(const PipeannAttribute *attribute, const uint8 *code)
{
	(void) attribute;
	(void) code;
	return true;
}

/* ---------- conditions ---------- */

/*
 * A node may have an element if all of its bits are away. Bits are tested byte by byte,
 * as one byte of all nodes stands together.
 */

/* Of nodes that an element without a bit of its own lets pass so many have it. */
static double
PrecisionOf(const PipeannElementBook *book)
{
	if (book == NULL || book->in_rows <= 0)
		return BLOOM_PRECISION;
	return book->in_rows / (book->in_rows + book->in_vain);
}

/* Elements that all have to be there. The first byte tells what was written, too. */
static void
PassAll(const PipeannAttribute *attribute, const PipeannElementBook *book,
		PipeannElements elements, PipeannCodeFilter *filter)
{
	uint8		all[PIPEANN_MOST_WIDTH] = {0};
	bool		exact = true;

	for (int i = 0; i < elements.n; i++)
		exact &= AddElement(book, attribute->width, elements.hashes[i], all);
	for (int j = attribute->width - 1; j >= 0; j--)
		if (all[j] != 0 || j == 0)
			PipeannLetPass(PipeannAddTest(filter, attribute, j), all[j],
					j == 0 ? WRITTEN : 0);
	if (!exact)
		filter->precision = Min(filter->precision, PrecisionOf(book));
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

/*
 * Elements of which one has to be there. Those with bits in one byte only share a test
 * of this; and so do, by a part of their bits, those for which there is no more room.
 */
static void
PassAny(const PipeannAttribute *attribute, const PipeannElementBook *book,
		PipeannElements elements, PipeannCodeFilter *filter)
{
	PipeannCodeColumn shared[PIPEANN_MOST_WIDTH] = {0};
	bool		is_shared[PIPEANN_MOST_WIDTH] = {false};
	bool		exact = true;
	int			before = filter->n;

	for (int i = 0; i < elements.n; i++)
	{
		uint8		bits[PIPEANN_MOST_WIDTH] = {0};
		int			byte = 0;
		int			n;

		exact &= AddElement(book, attribute->width, elements.hashes[i], bits);
		n = BytesWith(bits, attribute->width, &byte);
		if (n > 1 && PipeannFilterRoom(filter) >= n + attribute->width + 1)
		{
			PipeannAddAlternative(filter, attribute, 0, bits,
								  attribute->width, true);
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
		filter->precision = Min(filter->precision, PrecisionOf(book));
	if (filter->n > before)
		PipeannEndAlternatives(filter);
	else
		(void) PipeannAddTest(filter, attribute, 0);	/* nothing passes */
}

static void
PassOne(PipeannAttribute *attribute, const PipeannElementBook *book,
		const PipeannCondition *condition, PipeannCodeFilter *filter)
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
		PassAll(attribute, book, elements, filter);
	else
	{
		PipeannLetPass(PipeannAddTest(filter, attribute, 0), 0, WRITTEN);
		PassAny(attribute, book, elements, filter);
	}
}

static void
Pass(const PipeannAttributes *a, PipeannAttribute *attribute,
	 const PipeannCondition *conditions, int n, PipeannCodeFilter *filter)
{
	for (int i = 0; i < n; i++)
		PassOne(attribute, BookOf(a, attribute), &conditions[i], filter);
}

/* ---------- the codec ---------- */

/* What compares elements is their type's equality, as in the operators of arrays. */
static Oid
HashOfType(Oid type)
{
	return lookup_type_cache(type, TYPECACHE_EQ_OPR |
							 TYPECACHE_HASH_PROC)->hash_proc;
}

/* Whether the operators on arrays are those that compare by elements' equality. */
static bool
OrderOfClass(Oid family, Oid type, PipeannOrder *order)
{
	Oid			overlaps = get_opfamily_member(family, type, type,
											   PIPEANN_OVERLAPS_STRATEGY);
	Oid			contains = get_opfamily_member(family, type, type,
											   PIPEANN_CONTAINS_STRATEGY);

	return OidIsValid(order->function) &&
		(!OidIsValid(overlaps) || get_opcode(overlaps) == F_ARRAYOVERLAP) &&
		(!OidIsValid(contains) || get_opcode(contains) == F_ARRAYCONTAINS);
}

static int
FirstWidth(Oid type, bool by_type)
{
	(void) type;
	return by_type ? 2 : 4;		/* enough for a few elements */
}

const PipeannCodec PipeannElementCodec = {
	.function_of_type = HashOfType,
	.order_of_class = OrderOfClass,
	.first_width = FirstWidth,
	.width = PipeannElementWidth,
	.most_samples = 2000,		/* arrays may be long */
	.most_bytes = MaxAllocSize,
	.train = PipeannElementTrain,
	.encode = Encode,
	.mix = Mix,
	.merge = Merge,
	.is_written = IsWritten,
	.covers = Covers,
	.may_shrink = MayShrink,
	.pass = Pass,
};
