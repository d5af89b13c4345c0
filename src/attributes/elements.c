/*
 * elements.c
 *		The codec of arrays: bits of their elements.
 *
 * A code has bits for each element, inverted, so that rows that join a node
 * clear bits. The first bit is set in every code that is written.
 *
 * Frequent elements have a bit each, all others some bits of a Bloom filter. The
 * histogram of an array column lists the frequent elements, and has the number of
 * bits of the others. Elements are known by their hashes: two with one hash share
 * their bits, and a condition on one lets the other pass, which does no harm.
 */
#include "postgres.h"

#include <math.h>

#include "access/skey.h"
#include "attributes/coding.h"
#include "lib/qunique.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/typcache.h"

/*
 * The histograms of the codec of arrays: which elements have a bit of their own, and
 * how many bits others have.
 */

/* Elements of a row that are counted. */
#define MOST_COUNTED 255

/*
 * A code is wide enough if no more than this share of rows are false
 * positives, or hardly more than with the widest code.
 */
#define GOOD_SHARE (1.0 / 64)
#define GOOD_FACTOR 1.25

/* The most bits that an element has in the Bloom filter. */
#define MOST_HASHES 8

typedef struct Histogram
{
	uint32		own;			/* elements with a bit of their own */
	uint32		hashes;			/* bits of each other element; 0 means 1 */
	float		in_vain;		/* false positives of one of the others */
	float		in_rows;		/* rows that contain one of the others */
	uint32		elements[8 * PIPEANN_MOST_WIDTH - 2];	/* [own], by their hashes */
} Histogram;

/* Bits of a code but for the first one. */
static uint32
ElementBits(int width)
{
	return 8 * (uint32) width - 1;
}

static uint32
MostOwn(int width)
{
	return ElementBits(width) - 1;
}

/* The elements of an array but for NULLs, by their hashes. */
typedef struct Elements
{
	int			n;
	uint32	   *hashes;
} Elements;

static Elements
ElementsOf(PipeannAttribute *attribute, Datum value)
{
	ArrayType  *array = DatumGetArrayTypeP(value);
	ArrayIterator iterator = array_create_iterator(array, 0, NULL);
	Elements elements = {
		.hashes = palloc(mul_size(ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array)),
								  sizeof(uint32)))
	};
	Datum		element;
	bool		isnull;

	while (array_iterate(iterator, &element, &isnull))
		if (!isnull)
			elements.hashes[elements.n++] =
				DatumGetUInt32(FunctionCall1Coll(&attribute->function,
												 attribute->order.collation,
												 element));
	array_free_iterator(iterator);
	return elements;
}

typedef struct Counted
{
	uint32		hash;
	uint32		rows;
	uint32		first;			/* the first pair with it */
} Counted;

/* Statistics of the elements of sampled rows. */
typedef struct Sample
{
	uint32		rows;
	uint32		n;				/* different elements, the frequent ones first */
	Counted    *counted;
	uint32		npairs;			/* pairs of an element and a row that has it */
	uint64	   *pairs;			/* sorted: hash << 32 | row */
} Sample;

/* A possible code, and its false positives. */
typedef struct Choice
{
	int			width;
	uint32		own;
	uint32		hashes;
	double		in_vain;
} Choice;

static int
ComparePairs(const void *x, const void *y)
{
	uint64		a = *(const uint64 *) x;
	uint64		b = *(const uint64 *) y;

	return a < b ? -1 : a > b;
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

static Sample
SampleOf(PipeannAttribute *attribute, const PipeannSamples *samples)
{
	Sample		s = {0};
	uint32		size = 1024;

	s.rows = samples->n;
	s.pairs = palloc(mul_size(size, sizeof(uint64)));
	for (uint32 i = 0; i < s.rows; i++)
	{
		Elements elements = ElementsOf(attribute, samples->values[i]);

		CHECK_FOR_INTERRUPTS();
		while (s.npairs + elements.n > size)
		{
			size *= 2;
			s.pairs = repalloc_huge(s.pairs, mul_size(size, sizeof(uint64)));
		}
		for (int j = 0; j < elements.n; j++)
			s.pairs[s.npairs++] = (uint64) elements.hashes[j] << 32 | i;
		pfree(elements.hashes);
	}
	qsort(s.pairs, s.npairs, sizeof(uint64), ComparePairs);
	s.npairs = qunique(s.pairs, s.npairs, sizeof(uint64), ComparePairs);
	s.counted = palloc(mul_size(s.npairs, sizeof(Counted)));
	for (uint32 i = 0; i < s.npairs; i++)
	{
		uint32		hash = s.pairs[i] >> 32;

		if (s.n == 0 || s.counted[s.n - 1].hash != hash)
			s.counted[s.n++] = (Counted) {.hash = hash,.first = i};
		s.counted[s.n - 1].rows++;
	}
	qsort(s.counted, s.n, sizeof(Counted), CompareCounted);
	return s;
}

/* ---------- what is best ---------- */

/* The share of false positives: rows with all bits of an element that they lack. */
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

/* Try codes with this many elements that have bits of their own; keep the best. */
static void
TryOwn(const Sample *s, uint32 own, Choice *best)
{
	uint32		rows_with[MOST_COUNTED + 1];
	uint32	   *others = palloc0(mul_size(s->rows, sizeof(uint32)));

	/* count rows by their elements that have no bit of their own */
	for (uint32 i = own; i < s->n; i++)
		for (uint32 j = 0; j < s->counted[i].rows; j++)
			others[(uint32) s->pairs[s->counted[i].first + j]]++;
	memset(rows_with, 0, (MOST_COUNTED + 1) * sizeof(uint32));
	for (uint32 i = 0; i < s->rows; i++)
		rows_with[Min(others[i], MOST_COUNTED)]++;
	pfree(others);
	for (uint32 hashes = 1; hashes <= MOST_HASHES; hashes++)
	{
		double		in_vain = ShareInVain(s, rows_with,
										  ElementBits(best->width) - own,
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

/* The codec's functions to choose the width and to train. */
static int
ElementWidth(PipeannAttribute *attribute, const PipeannSamples *samples)
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

static void
ElementTrain(const PipeannAttributes *a, PipeannAttribute *attribute,
			 const PipeannSamples *samples, char *histogram)
{
	Histogram *to = (Histogram *) histogram;
	Sample		s;
	Choice		best;
	uint64		rows = 0;

	if (samples->n == 0)
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

/* In the first byte of a code. */
#define WRITTEN 0x80

/* The share of passing nodes that match, if it is unknown. */
#define BLOOM_PRECISION 0.1

/* The histogram, checked; NULL if there is none. */
static const Histogram *
HistogramOf(const PipeannAttributes *a, const PipeannAttribute *attribute)
{
	const Histogram *histogram =
		(const Histogram *) attribute->histogram;

	if (histogram != NULL && (histogram->own > MostOwn(attribute->width) ||
							  histogram->hashes > MOST_HASHES))
		PipeannBrokenHistogram(a);
	return histogram;
}

/* Bit number 0 is the last one of the last byte. */
static void
SetBit(int width, uint32 bit, uint8 *bits)
{
	bits[width - 1 - bit / 8] |= 1 << bit % 8;
}

/* Add the bits of an element. Returns whether it alone has them. */
static bool
AddElement(const Histogram *histogram, int width, uint32 hash,
		   uint8 *bits)
{
	uint32		owned = histogram == NULL ? 0 : histogram->own;
	uint32		hashes = histogram == NULL ? 1 : Max(histogram->hashes, 1);
	uint32		rest = ElementBits(width) - owned;
	uint32		step = PipeannHashAgain(hash);

	for (uint32 i = 0; i < owned; i++)
		if (histogram->elements[i] == hash)
		{
			SetBit(width, ElementBits(width) - 1 - i, bits);
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
	const Histogram *histogram = HistogramOf(a, attribute);
	Elements elements = {0};

	memset(code, 0, attribute->width);
	if (!isnull)
		elements = ElementsOf(attribute, value);
	for (int i = 0; i < elements.n; i++)
		(void) AddElement(histogram, attribute->width, elements.hashes[i], code);
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
MayShrink(const PipeannAttribute *attribute, const uint8 *code)
{
	return true;
}

/* ---------- conditions ---------- */

/*
 * A node may have an element if all of its bits are cleared. Bits are tested
 * byte by byte, as a given byte of all nodes' codes is stored together.
 */

/*
 * Add tests for elements that all have to be present; returns whether each has a
 * bit of its own. The first byte's test also shows whether the code was written.
 */
static bool
PassAll(const PipeannAttribute *attribute, const Histogram *histogram,
		Elements elements, PipeannCodeFilter *filter)
{
	uint8		all[PIPEANN_MOST_WIDTH] = {0};
	bool		exact = true;

	for (int i = 0; i < elements.n; i++)
		exact &= AddElement(histogram, attribute->width, elements.hashes[i], all);
	for (int j = attribute->width - 1; j >= 0; j--)
		if (all[j] != 0 || j == 0)
			PipeannLetPass(PipeannAddTest(filter, attribute, j), all[j],
						   j == 0 ? WRITTEN : 0);
	return exact;
}

/*
 * Add tests for elements of which one has to be present. Those with bits in
 * only one byte share a test of it; when tests run out, others share one, too,
 * with only a part of their bits tested.
 */
static bool
PassAny(const PipeannAttribute *attribute, const Histogram *histogram,
		Elements elements, PipeannCodeFilter *filter)
{
	PipeannCodeColumn *shared[PIPEANN_MOST_WIDTH] = {NULL};
	bool		exact = true;
	int			before = filter->n;

	for (int i = 0; i < elements.n; i++)
	{
		uint8		bits[PIPEANN_MOST_WIDTH] = {0};
		int			byte = 0;
		int			n = 0;

		exact &= AddElement(histogram, attribute->width, elements.hashes[i],
							bits);
		for (int j = attribute->width - 1; j >= 0; j--)
			if (bits[j] != 0)
			{
				byte = j;
				n++;
			}
		if (n > 1 && filter->n + n + attribute->width + 1 <= PIPEANN_MAX_CODE_COLUMNS)
		{
			PipeannAddAlternative(filter, attribute, 0, bits,
								  attribute->width, true);
			continue;
		}
		if (shared[byte] == NULL)
			shared[byte] = PipeannAddTest(filter, attribute, byte);
		shared[byte]->otherwise = true;
		PipeannLetPass(shared[byte], bits[byte], 0);
	}
	if (filter->n > before)
		filter->columns[filter->n - 1].otherwise = false;
	else
		(void) PipeannAddTest(filter, attribute, 0);	/* nothing passes */
	return exact;
}

static void
PassOne(PipeannAttribute *attribute, const Histogram *histogram,
		const PipeannCondition *condition, PipeannCodeFilter *filter)
{
	ScanKey		key = condition->key;
	Elements elements = {0};
	bool		all = key->sk_strategy == PIPEANN_CONTAINS_STRATEGY;
	bool		exact;
	double		precision = BLOOM_PRECISION;

	/* room for one test of whether it was written, and for those of an element */
	if (filter->n + 2 * attribute->width + 2 > PIPEANN_MAX_CODE_COLUMNS)
		return;
	if ((key->sk_flags & (SK_SEARCHNULL | SK_SEARCHNOTNULL | SK_SEARCHARRAY)) ||
		(!all && key->sk_strategy != PIPEANN_OVERLAPS_STRATEGY))
		all = true;
	else
		elements = ElementsOf(attribute, condition->arguments[0]);
	if (all || elements.n == 1)
		exact = PassAll(attribute, histogram, elements, filter);
	else
	{
		PipeannLetPass(PipeannAddTest(filter, attribute, 0), 0, WRITTEN);
		exact = PassAny(attribute, histogram, elements, filter);
	}
	if (exact)
		return;
	if (histogram != NULL && histogram->in_rows > 0)
		precision = histogram->in_rows / (histogram->in_rows + histogram->in_vain);
	filter->precision = Min(filter->precision, precision);
}

static void
Pass(const PipeannAttributes *a, PipeannAttribute *attribute,
	 const PipeannCondition *conditions, int n, PipeannCodeFilter *filter)
{
	for (int i = 0; i < n; i++)
		PassOne(attribute, HistogramOf(a, attribute), &conditions[i], filter);
}

/* ---------- the codec ---------- */

/*
 * Elements are compared by their type's equality, and so they have to be by the operators
 * on arrays.
 */
static bool
FindOrder(Oid type, Oid family, Oid intype, PipeannOrder *order)
{
	Oid			overlaps = get_opfamily_member(family, intype, intype,
											   PIPEANN_OVERLAPS_STRATEGY);
	Oid			contains = get_opfamily_member(family, intype, intype,
											   PIPEANN_CONTAINS_STRATEGY);

	order->function = lookup_type_cache(type, TYPECACHE_EQ_OPR |
										TYPECACHE_HASH_PROC)->hash_proc;
	return OidIsValid(order->function) &&
		(!OidIsValid(overlaps) || get_opcode(overlaps) == F_ARRAYOVERLAP) &&
		(!OidIsValid(contains) || get_opcode(contains) == F_ARRAYCONTAINS);
}

static int
FirstWidth(Oid type)
{
	return 4;					/* enough for a few elements */
}

const PipeannCodec PipeannElementCodec = {
	.find_order = FindOrder,
	.first_width = FirstWidth,
	.width = ElementWidth,
	.most_samples = 2000,		/* arrays may be long */
	.most_bytes = MaxAllocSize,
	.train = ElementTrain,
	.encode = Encode,
	.mix = Mix,
	.merge = Merge,
	.may_shrink = MayShrink,
	.pass = Pass,
};
